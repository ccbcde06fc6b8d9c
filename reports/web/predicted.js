// Predictions beside measurements of the same settings, over all sweeps of the page; what error is to be expected where nothing was measured.
const envOf = (sw, c, name) => { const own = sw.environments[c.environment] || {}; return own[name] ?? sw.environment[name]; };

function expectedErrors() {
  const found = new Map();
  for (const sw of report.sweeps) {
    for (const c of sw.cases.filter((k) => k.predicted && known(k.step_ns))) {
      const hardware = envOf(sw, c, 'predicted_hardware') || 'unnamed hardware', error = envOf(sw, c, 'predicted_error_median');
      const text = hardware + ': ' + (error === undefined ? 'nobody has compared its predictions with measurements; take them for the order of cases, not for times'
        : 'expected error ' + percent(Number(error)) + ' in the median (' + (envOf(sw, c, 'predicted_error_source') || 'source not given') + ')') +
        (envOf(sw, c, 'predicted_from_assumed') ? '; assumed, not measured: ' + envOf(sw, c, 'predicted_from_assumed') : '') + '.';
      found.set(text, (found.get(text) || 0) + 1);
    }
  }
  return [...found].map(([text, n]) => text + ' (' + plural(n, 'case', 'cases') + ')');
}
const predictedPairs = () => report.predictions.map(([ps, pc, ms, mc]) => {
  const p = report.sweeps[ps].cases[pc], m = report.sweeps[ms].cases[mc];
  return { ps, pc, ms, mc, p, m, error: p.step_ns / m.step_ns - 1 };
});

// Shows a case of any sweep of the page.
function goTo(sweepIndex, caseIndex) {
  state.sweep = sweepIndex;
  state.workload = Math.max(0, report.sweeps[sweepIndex].workloads.findIndex((w) => w.cases.includes(caseIndex)));
  state.case = caseIndex;
  view();
  byId('case').scrollIntoView();
}
const labelIn = (sweepIndex, c) => {
  const sw = report.sweeps[sweepIndex];
  return sw.axes.map((a, k) => (a.values.length < 2 ? '' : axisLabel(a, valueText(a.values[c.at[k]] ?? '')))).filter(Boolean).join(', ') || c.id;
};

function renderPredicted() {
  const part = byId('predicted'), pairs = predictedPairs(), expected = expectedErrors();
  if (!expected.length) return put(part);
  const where = h('div', { class: 'chart' });
  put(part, heading('predicted', 'Predicted against measured', pairs.length > 0 && exportButtons(() => where.querySelector('svg'), 'predicted-measured')),
    h('ul', { class: 'warnings' }, expected.map((text) => h('li', { dir: 'auto' }, text))),
    pairs.length ? [h('p', { class: 'muted lead' }, predictedSummary(pairs)), h('figure', {}, where), worstPairs(pairs)] :
      h('p', { class: 'muted' }, 'No predicted case of this page was measured with the same settings, so nothing here tells how good the predictions are.'));
  if (pairs.length) drawPredicted(where, pairs);
}
function predictedSummary(pairs) {
  const sizes = pairs.map((p) => Math.abs(p.error)).sort((a, b) => a - b), n = sizes.length;
  const equal = pairs.filter((p) => p.p.peak_bytes && p.p.peak_bytes === p.m.peak_bytes).length;
  return plural(n, 'case was', 'cases were') + ' predicted and measured: median error ' + percent((sizes[(n - 1) >> 1] + sizes[n >> 1]) / 2) + ', worst ' + percent(sizes[n - 1]) +
    '; peak memory equal to the byte in ' + integer(equal) + '. Points on the line agree; the band is 10 % to both sides.';
}
function worstPairs(pairs) {
  const rows = [...pairs].sort((a, b) => Math.abs(b.error) - Math.abs(a.error)).slice(0, 8);
  const link = (text, sw, c) => h('a', { href: '#case', class: 'link', dir: 'auto', onclick: (e) => { e.preventDefault(); goTo(sw, c); } }, text);
  return h('details', {}, h('summary', {}, 'The largest differences'), h('div', { class: 'scroll' }, h('table', {}, h('thead', {}, h('tr', {}, ['case', 'predicted', 'measured', 'error'].map((t, k) => h('th', { scope: 'col', class: k && 'number' }, t)))),
    h('tbody', {}, rows.map((r) => h('tr', {}, h('td', { dir: 'auto' }, labelIn(r.ms, r.m)), h('td', { class: 'number' }, link(duration(r.p.step_ns), r.ps, r.pc)),
      h('td', { class: 'number' }, link(duration(r.m.step_ns), r.ms, r.mc)), h('td', { class: 'number' }, (r.error > 0 ? '+' : '\u2212') + percent(Math.abs(r.error)))))))));
}

function drawPredicted(where, pairs) {
  const width = Math.min(640, Math.max(280, where.clientWidth)), height = Math.min(width, 460), left = 62, bottom = height - 50, right = width - 16, top = 12;
  const all = pairs.flatMap((p) => [p.p.step_ns, p.m.step_ns]), least = Math.min(...all), most = Math.max(...all) * 1.06;
  const logarithmic = most / least > 30, from = logarithmic ? least / 1.15 : 0;
  const place = logarithmic ? (v) => Math.log(Math.max(v, from) / from) / Math.log(most / from) : (v) => v / most;
  const xOf = (v) => left + place(v) * (right - left), yOf = (v) => bottom - place(v) * (bottom - top);
  const scale = scaleFormat('time', most);
  const marks = logarithmic ? decades(from, most) : ticks(most, width < 420 ? 3 : 5);
  const svg = s('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': 'Predicted against measured step time' });
  for (const v of marks) {
    svg.append(s('path', { d: `M${left},${yOf(v)}H${right}`, class: 'grid' }), s('path', { d: `M${xOf(v)},${top}V${bottom}`, class: 'grid' }),
      s('text', { x: left - 8, y: yOf(v) + 4, class: 'tick end' }, scale.text(v)), s('text', { x: xOf(v), y: bottom + 18, class: 'tick middle' }, scale.text(v)));
  }
  const a = from, b = most / 1.1;
  svg.append(s('path', { class: 'band', d: `M${xOf(a)},${yOf(a * 1.1)}L${xOf(b)},${yOf(most)}L${xOf(most)},${yOf(most)}L${xOf(most)},${yOf(most * 0.9)}L${xOf(a)},${yOf(a * 0.9)}Z` }),
    s('path', { class: 'limit even', d: `M${xOf(a)},${yOf(a)}L${xOf(most)},${yOf(most)}` }),
    s('text', { x: (left + right) / 2, y: height - 8, class: 'axis-name middle' }, 'measured step (' + scale.unit + (logarithmic ? ', logarithmic' : '') + ')'),
    s('text', { class: 'axis-name middle', transform: `translate(12 ${(bottom + top) / 2}) rotate(-90)` }, 'predicted step (' + scale.unit + ')'));
  const group = s('g', { class: 'line-mark', style: 'color:var(--l0)' });
  for (const r of pairs) {
    const x = xOf(r.m.step_ns), y = yOf(r.p.step_ns), label = labelIn(r.ms, r.m);
    group.append(s('g', { ...interactive(() => [label, ['measured', duration(r.m.step_ns)], ['predicted', duration(r.p.step_ns)], ['error', (r.error > 0 ? '+' : '\u2212') + percent(Math.abs(r.error))],
      ['peak, measured', bytes(r.m.peak_bytes)], ['peak, predicted', bytes(r.p.peak_bytes)]], () => goTo(r.ms, r.mc), label + ': error ' + percent(r.error)), class: 'point hollow' },
    s('circle', { cx: x, cy: y, r: 10, class: 'halo' }), s('circle', { cx: x, cy: y, r: 4 })));
  }
  svg.append(group);
  put(where, svg);
}
function decades(from, to) {
  const out = [];
  for (let p = Math.pow(10, Math.floor(Math.log10(from))); p <= to; p *= 10) for (const m of [1, 2, 5]) if (m * p >= from && m * p <= to) out.push(m * p);
  return out;
}
