// Step time against the x axis: one line for each value of the other axes, with intervals; what failed stands in a strip above.
const markers = [
  (x, y, r) => s('circle', { cx: x, cy: y, r }),
  (x, y, r) => s('rect', { x: x - r * 0.9, y: y - r * 0.9, width: r * 1.8, height: r * 1.8 }),
  (x, y, r) => s('path', { d: `M${x},${y - r * 1.2}L${x + r * 1.1},${y + r * 0.8}H${x - r * 1.1}Z` }),
  (x, y, r) => s('path', { d: `M${x},${y - r * 1.3}L${x + r * 1.3},${y}L${x},${y + r * 1.3}L${x - r * 1.3},${y}Z` }),
];
const lineColour = (i) => 'var(--l' + (i % 8) + ')';

function stepValue(c) {
  if (!ran(c)) return null;
  return state.y === 'rate' ? c.tokens_per_s : c.step_ns;
}
// [low, high] in the unit of the chart; a rate turns the interval round.
function stepInterval(c) {
  if (!known(c.step_ci_low_ns) || !known(c.step_ci_high_ns) || !c.step_ns) return null;
  if (state.y !== 'rate') return [c.step_ci_low_ns, c.step_ci_high_ns];
  return [c.tokens_per_s * c.step_ns / c.step_ci_high_ns, c.tokens_per_s * c.step_ns / c.step_ci_low_ns];
}
function stepLines(c) {
  const lines = [labelOf(c)];
  if (!ran(c)) return [...lines, [statuses[c.status][0], ''], whyNot(c)];
  lines.push(['step', duration(c.step_ns)]);
  if (known(c.step_ci_low_ns)) lines.push([(c.ci_coverage ? percent(c.ci_coverage) + ' ' : '') + 'interval', duration(c.step_ci_low_ns) + ' \u2013 ' + duration(c.step_ci_high_ns)]);
  lines.push(['tokens/s', integer(c.tokens_per_s)], ['units', integer(c.units)], ['exposed', known(exposedOf(c)) ? percent(exposedOf(c) / c.traced_step_ns) : none], ['peak', bytes(c.peak_bytes)]);
  if (marksOf(c).length) lines.push(marksOf(c).join(', '));
  return lines;
}

const coarseToFine = (x) => x.i === sweep().granularity && x.units.every((u) => u >= 0);
function tickLabels(x, band) {
  const unitsKnown = x && x.units.length === x.values.length;
  return (at) => {
    const second = unitsKnown && x.units[at] >= 0 ? plural(x.units[at], 'unit', 'units') : '';
    return { full: x ? valueText(x.values[at]) : 'all cases', second, width: band };
  };
}

function renderStep() {
  const part = byId('step');
  if (!workload()) return put(part);
  const x = xAxis();
  const where = h('div', { class: 'chart' });
  put(part, 
    heading('step', state.y === 'rate' ? 'Throughput' : 'Step time', choice('Measure', [['step', 'step time'], ['rate', 'tokens/s']], state.y, (v) => change({ y: v })),
      exportButtons(() => where.querySelector('svg'), 'step-time')),
    h('p', { class: 'muted lead' }, x ? 'Against ' + shortAxis(x.name) + (coarseToFine(x) ? ', coarse to fine' : '') +
      '. Bars are confidence intervals of the median; a hollow point was predicted, a ringed one is the selected case. ' + (shown().some((i) => caseAt(i).status === 'near_oom') ? 'An exclamation mark: near out of memory. ' : '') + 'Click a point to see its step.' + emulatedNote() : 'The sweep has one setting.'),
    h('figure', {}, where, h('figcaption', {}, lineLegend())), neighbourTable());
  drawStep(where, x);
}

function lineLegend() {
  const lines = linesShown();
  if (lines.length < 2) return null;
  return h('ul', { class: 'legend' }, lines.map((line, i) => h('li', { onpointerenter: () => emphasise(i), onpointerleave: () => emphasise(null) },
    s('svg', { width: 26, height: 12, 'aria-hidden': 'true' }, s('g', { style: 'color:' + lineColour(i), class: 'line-mark' }, s('path', { d: 'M0,6H26', class: 'line' }), markers[i % 4](13, 6, 4))),
    h('span', { dir: 'auto' }, line.label))));
}
function emphasise(i) {
  const svg = byId('step').querySelector('.chart svg');
  if (!svg) return;
  for (const g of svg.querySelectorAll('[data-line]')) g.classList.toggle('faded', i !== null && Number(g.dataset.line) !== i);
}

function drawStep(where, x) {
  const width = Math.max(280, where.clientWidth);
  const lines = linesShown();
  const here = new Set(shown().map((i) => (x ? caseAt(i).at[x.i] : 0)));
  const positions = [...here].sort((a, b) => a - b);
  const points = lines.flatMap((line, l) => line.cases.map((i) => ({ i, l, c: caseAt(i), at: positions.indexOf(x ? caseAt(i).at[x.i] : 0) })));
  const failed = points.filter((p) => stepValue(p.c) === null);
  const top = Math.max(0, ...points.map((p) => Math.max(stepValue(p.c) || 0, (stepInterval(p.c) || [0, 0])[1]))) * 1.04;
  const scale = scaleFormat(state.y === 'rate' ? 'rate' : 'time', top);
  const marks = top > 0 ? ticks(top, 5) : [];
  const left = Math.max(46, ...marks.map((v) => widthOf(scale.text(v)) + 26));
  const band = (width - left - 12) / Math.max(1, positions.length);
  const label = tickLabels(x, band);
  const tilted = positions.some((at) => widthOf(label(at).full) > band - 6);
  const below = tilted ? 104 : 58;
  const strip = failed.length ? 30 : 8;
  const height = top > 0 ? (width < 520 ? 300 : 340) + (tilted ? 40 : 0) : 60 + below;
  const bottom = height - below;
  const yOf = (v) => bottom - (v / (top || 1)) * (bottom - strip - 8);
  const xOf = (at, l) => left + band * (at + 0.5) + (lines.length > 1 ? (l - (lines.length - 1) / 2) * Math.min(16, band * 0.65 / lines.length) : 0);

  // What failed at one place stands side by side.
  const failedX = new Map();
  positions.forEach((_, at) => {
    const there = failed.filter((p) => p.at === at), gap = Math.min(14, (band - 8) / Math.max(1, there.length));
    there.forEach((p, k) => failedX.set(p, left + band * (at + 0.5) + (k - (there.length - 1) / 2) * gap));
  });

  const svg = s('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': 'Step time against ' + (x ? x.name : 'the only setting') });
  for (const v of marks) {
    svg.append(s('path', { d: `M${left},${yOf(v)}H${width - 8}`, class: v ? 'grid' : 'axis' }), s('text', { x: left - 8, y: yOf(v) + 4, class: 'tick end' }, scale.text(v)));
  }
  if (top > 0) svg.append(s('text', { class: 'axis-name middle', transform: `translate(12 ${(bottom + strip) / 2}) rotate(-90)` },
    state.y === 'rate' ? 'tokens per second' : 'step time (' + scale.unit + ')'));
  drawPositions(svg, positions, label, { left, band, bottom, tilted, height, width, name: x ? shortAxis(x.name) + (coarseToFine(x) ? ' (coarse to fine)' : '') : '' });
  if (failed.length) {
    svg.append(s('rect', { x: left, y: 2, width: width - left - 8, height: strip - 6, class: 'strip' }),
      s('text', { x: left - 8, y: 16, class: 'tick end' }, 'failed'));
  }
  lines.forEach((line, l) => svg.append(drawLine(points.filter((p) => p.l === l), l, xOf, yOf, failedX)));
  put(where, svg);
}

function drawPositions(svg, positions, label, g) {
  positions.forEach((at, k) => {
    const x = g.left + g.band * (k + 0.5), { full, second } = label(at);
    if (g.tilted) {
      const text = fitted(full, 96) + (second ? ' \u00b7 ' + second.split(' ')[0] : '');
      svg.append(s('text', { class: 'tick end', transform: `translate(${x + 4} ${g.bottom + 16}) rotate(-40)` }, s('title', {}, full.slice(0, 300) + ' ' + second), text));
    } else {
      svg.append(s('text', { x, y: g.bottom + 18, class: 'tick middle strong' }, full), s('text', { x, y: g.bottom + 33, class: 'tick middle faint' }, g.band > widthOf(second) + 4 ? second : second.split(' ')[0]));
    }
  });
  svg.append(s('text', { x: (g.left + g.width) / 2, y: g.height - 6, class: 'axis-name middle' }, g.name));
}

function drawLine(points, l, xOf, yOf, failedX) {
  const good = points.filter((p) => stepValue(p.c) !== null);
  const group = s('g', { 'data-line': l, class: 'line-mark', style: 'color:' + lineColour(l) });
  if (good.length > 1) group.append(s('path', { class: 'line', d: 'M' + good.map((p) => xOf(p.at, l) + ',' + yOf(stepValue(p.c))).join('L') }));
  for (const p of points) {
    const value = stepValue(p.c), x = value === null ? failedX.get(p) : xOf(p.at, l), interval = stepInterval(p.c);
    const mark = s('g', { ...interactive(() => stepLines(p.c), () => choose(p.i, false), labelOf(p.c) + ': ' + (value === null ? statuses[p.c.status][0] : duration(p.c.step_ns))),
      class: 'point' + (p.i === state.case ? ' chosen' : '') + (p.c.predicted ? ' hollow' : '') });
    if (value === null) {
      const y = 13;
      mark.append(s('circle', { cx: x, cy: y, r: 9, class: 'halo' }), s('path', { class: 'cross status-ink-' + p.c.status, d: `M${x - 4},${y - 4}L${x + 4},${y + 4}M${x + 4},${y - 4}L${x - 4},${y + 4}` }));
    } else {
      const y = yOf(value);
      if (interval && yOf(interval[0]) - yOf(interval[1]) > 1) {
        mark.append(s('path', { class: 'whisker', d: `M${x},${yOf(interval[0])}V${yOf(interval[1])}M${x - 3},${yOf(interval[0])}h6M${x - 3},${yOf(interval[1])}h6` }));
      }
      mark.append(s('circle', { cx: x, cy: y, r: 10, class: 'halo' }), markers[l % 4](x, y, 4.5));
      if (p.c.status === 'near_oom') mark.append(s('text', { x: x + 8, y: y - 6, class: 'tick warn' }, '!'));
    }
    group.append(mark);
  }
  return group;
}
