// Heat map: one measure over two axes. A cell shows the best of the cases that the filters leave there; where none ran, what became of them.
const heatMeasures = {
  step: { name: 'step time', get: (c) => (ran(c) ? c.step_ns : null), text: duration, less: true },
  rate: { name: 'tokens/s', get: (c) => (ran(c) ? c.tokens_per_s : null), text: integer, less: false },
  exposed: { name: 'exposed communication', get: (c) => (c.partition ? exposedOf(c) / c.traced_step_ns : null), text: percent, less: true },
  overlap: { name: 'overlap', get: (c) => (ran(c) && known(c.overlap_pct) ? c.overlap_pct / 100 : null), text: percent, less: false },
  peak: { name: 'peak memory', get: (c) => (ran(c) ? c.peak_bytes : null), text: bytes, less: true },
};
const heatSteps = 7;

function heatAxes() {
  const free = freeAxes();
  if (free.length < 2) return null;
  const x = free.find((a) => a.name === state.hx) || xAxis();
  const y = free.find((a) => a.name === state.hy && a.i !== x.i) || free.find((a) => a.i !== x.i);
  return { x, y };
}
// Filters of the axes that the map does not show.
const heatCases = ({ x, y }) => casesInView().filter((i) => otherAxes().every((a) => a.i === x.i || a.i === y.i || onlyOf(a) === null || caseAt(i).at[a.i] === onlyOf(a)));

function heatCells({ x, y }, measure) {
  const cells = new Map();
  for (const i of heatCases({ x, y })) {
    const c = caseAt(i), key = c.at[x.i] + ' ' + c.at[y.i];
    if (!cells.has(key)) cells.set(key, { x: c.at[x.i], y: c.at[y.i], all: [], best: null, value: null });
    const cell = cells.get(key), v = measure.get(c);
    cell.all.push(i);
    if (known(v) && (cell.value === null || (measure.less ? v < cell.value : v > cell.value))) Object.assign(cell, { best: i, value: v });
  }
  for (const cell of cells.values()) cell.failed = cell.value === null ? cell.all.find((i) => caseAt(i).status === 'oom') ?? cell.all[0] : null;
  return [...cells.values()];
}

function renderHeat() {
  const part = byId('heat'), axes = workload() ? heatAxes() : null;
  if (!axes) return put(part);
  const measure = heatMeasures[state.hm];
  const where = h('div', { class: 'chart' });
  const names = freeAxes().map((a) => [a.name, shortAxis(a.name)]);
  put(part, heading('heat', 'Two settings at once',
    picker('across', names, axes.x.name, (v) => change({ hx: v, hy: v === axes.y.name ? axes.x.name : state.hy })),
    picker('down', names, axes.y.name, (v) => change({ hy: v, hx: v === axes.x.name ? axes.y.name : axes.x.name })),
    picker('measure', Object.entries(heatMeasures).map(([k, m]) => [k, m.name]), state.hm, (v) => change({ hm: v })),
    exportButtons(() => where.querySelector('svg'), 'heat-map')),
  h('p', { class: 'muted lead' }, 'Each cell is the best case there in ' + measure.name + '; the scale runs from best to worst. Hatched: out of memory, with what filled it. The other settings stand as filtered above, or at their best.' + emulatedNote()),
  h('figure', {}, where));
  drawHeat(where, axes, measure);
}

function drawHeat(where, { x, y }, measure) {
  const cells = heatCells({ x, y }, measure);
  const columns = [...new Set(cells.map((c) => c.x))].sort((a, b) => a - b), rows = [...new Set(cells.map((c) => c.y))].sort((a, b) => a - b);
  const width = Math.max(280, where.clientWidth);
  const left = Math.min(width * 0.3, Math.max(40, ...rows.map((v) => widthOf(valueText(y.values[v]).slice(0, 60)) + 16)));
  const band = (width - left - 8) / columns.length, rowHeight = 36;
  const label = tickLabels(x, band);
  const tilted = columns.some((at) => widthOf(label(at).full) > band - 6);
  const top = 20, bottom = top + rows.length * rowHeight, height = bottom + (tilted ? 104 : 58) + 34;
  const values = cells.filter((c) => c.value !== null).map((c) => c.value);
  const low = Math.min(...values), high = Math.max(...values);
  const shade = (v) => { const t = high > low ? (v - low) / (high - low) : 0; return Math.min(heatSteps - 1, Math.floor((measure.less ? t : 1 - t) * heatSteps)); };
  const best = measure.less ? low : high;
  const svg = s('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': measure.name + ' over ' + x.name + ' and ' + y.name });
  svg.append(s('text', { x: 4, y: 13, class: 'column-name' }, fitted(shortAxis(y.name), width - 12, 11.5)));
  rows.forEach((v, k) => svg.append(s('text', { x: left - 8, y: top + k * rowHeight + 22, class: 'tick end strong' }, fitted(valueText(y.values[v]), left - 14))));
  drawPositions(svg, columns, label, { left, band, bottom, tilted, height: height - 34, width, name: shortAxis(x.name) + (coarseToFine(x) ? ' (coarse to fine)' : '') });
  for (const cell of cells) {
    svg.append(drawCell(cell, { left: left + columns.indexOf(cell.x) * band, top: top + rows.indexOf(cell.y) * rowHeight, width: band, height: rowHeight, measure, shade, best }));
  }
  if (values.length) drawHeatScale(svg, { left, top: height - 26, width: width - left - 8, measure, low, high });
  put(where, svg);
}

function heatLines(cell, measure) {
  const i = cell.best ?? cell.failed, c = caseAt(i), lines = stepLines(c);
  if (cell.best !== null && measure !== heatMeasures.step) lines.splice(1, 0, [measure.name, measure.text(cell.value)]);
  const failed = cell.all.filter((k) => !ran(caseAt(k))).length;
  if (cell.all.length > 1) lines.push('Best of ' + cell.all.length + ' cases' + (failed ? ', ' + failed + ' of which failed' : '') + '.');
  return lines;
}
function drawCell(cell, g) {
  const i = cell.best ?? cell.failed, c = caseAt(i), ok = cell.best !== null;
  const status = statuses[c.status][0], cause = c.status === 'oom' && c.peak_cause ? c.peak_cause.split(', ').pop() : '';
  const text = ok ? g.measure.text(cell.value) : status;
  const group = s('g', { ...interactive(() => heatLines(cell, g.measure), () => choose(i, false), labelOf(c) + ': ' + (ok ? g.measure.name + ' ' + text : status + (cause ? ', ' + cause : ''))),
    class: 'cell' + (cell.all.includes(state.case) ? ' chosen' : '') });
  const box = { x: g.left + 1, y: g.top + 1, width: Math.max(2, g.width - 2), height: g.height - 2, rx: 3 };
  const middle = g.left + g.width / 2, shade = ok ? g.shade(cell.value) : 0;
  group.append(s('rect', { ...box, style: 'fill:' + (ok ? 'var(--h' + shade + ')' : 'var(--' + (c.status === 'oom' ? 'bad' : 'off') + '-soft)') }));
  if (c.status === 'oom') group.append(s('rect', { ...box, fill: 'url(#hatch)', class: 'hatched' }));
  const ink = ok ? (shade < 4 ? 'heat-low' : 'heat-high') : 'heat-fail status-ink-' + c.status;
  const lost = cell.all.filter((k) => caseAt(k).status === 'oom').length;
  const second = !ok ? cause : [cell.value === g.best ? 'best' : c.status === 'near_oom' ? 'near OOM' : '', lost ? lost + ' of ' + cell.all.length + ' OOM' : ''].filter(Boolean).join(', ');
  const room = g.width - 8, line = second && widthOf(second, 11) <= room;
  if (widthOf(text) <= room) group.append(s('text', { x: middle, y: g.top + (line ? 16 : 22), class: 'middle ' + ink }, text));
  if (line) group.append(s('text', { x: middle, y: g.top + 29, class: 'middle small ' + ink }, second));
  group.append(s('rect', { ...box, class: 'cell-edge' }));
  return group;
}
function drawHeatScale(svg, g) {
  const width = Math.min(28, g.width / 12), [from, to] = g.measure.less ? [g.low, g.high] : [g.high, g.low];
  const first = g.measure.text(from) + ' ', at = g.left + widthOf(first) + 8;
  svg.append(s('text', { x: g.left, y: g.top + 12, class: 'tick' }, first));
  for (let k = 0; k < heatSteps; k += 1) svg.append(s('rect', { x: at + k * width, y: g.top + 2, width: width - 1, height: 12, style: 'fill:var(--h' + k + ')' }));
  svg.append(s('text', { x: at + heatSteps * width + 6, y: g.top + 12, class: 'tick' }, g.measure.text(to)));
}
