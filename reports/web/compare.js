// The page of a comparison: what became of each case from A to B, the interval of its change, and whether the two may be compared at all.
const data = JSON.parse(byId('data').textContent);
const verdicts = {
  faster: ['faster', 'status-ok', 'The whole interval lies below minus the margin.'], slower: ['slower', 'status-oom', 'The whole interval lies above the margin.'],
  same: ['same', '', 'The whole interval lies inside the margin: a finding, not the absence of one.'], ambiguous: ['ambiguous', 'status-near_oom', 'The interval reaches across the margin: take more samples, or interleave.'],
  unknown: ['unknown', '', 'Too few samples for an interval.'], none: ['not compared', '', 'One of the two was not measured.'],
};
const verdictOf = (c) => c.verdict || 'none';
const signed = (v) => (!known(v) ? none : (v > 0 ? '+' : v < 0 ? '\u2212' : '') + percent(Math.abs(v)));
const view = { verdict: 'all', words: '', order: 'given' };
const normalView = { ...view };

function readView() {
  const q = new URLSearchParams(location.hash.slice(1));
  view.verdict = Object.hasOwn(verdicts, q.get('verdict') || '') ? q.get('verdict') : 'all';
  view.order = ['given', 'effect'].includes(q.get('order')) ? q.get('order') : 'given';
  view.words = (q.get('words') || '').slice(0, 200);
}
function setView(patch) {
  Object.assign(view, patch);
  const q = new URLSearchParams(Object.entries(view).filter(([k, v]) => v !== normalView[k]));
  location.replace('#' + q.toString());
  render();
}
function shownCases() {
  const words = view.words.toLowerCase().split(/\s+/).filter(Boolean);
  const list = data.cases.filter((c) => (view.verdict === 'all' || verdictOf(c) === view.verdict) && words.every((w) => c.label.toLowerCase().includes(w)));
  return view.order === 'effect' ? [...list].sort((a, b) => (b.effect ?? -Infinity) - (a.effect ?? -Infinity)) : list;
}
const heading = (id, text, ...more) => h('div', { class: 'section-head' }, h('h2', { id: id + '-h' }, text), ...more);
const badge = (v, count) => h('span', { class: 'badge ' + verdicts[v][1], title: verdicts[v][2] }, verdicts[v][0], known(count) && h('b', {}, ' ' + count));

function answer() {
  if (data.numerics) return data.numerics + '.';
  if (data.unlike.length) return 'These two cannot be compared: they differ in what must be equal. No number is given.';
  const counts = {};
  for (const c of data.cases) counts[verdictOf(c)] = (counts[verdictOf(c)] || 0) + 1;
  const told = Object.keys(verdicts).filter((k) => counts[k]).map((k) => integer(counts[k]) + ' ' + verdicts[k][0]).join(', ');
  const compared = data.cases.filter((c) => known(c.effect)), worst = compared.reduce((a, c) => (!a || c.effect > a.effect ? c : a), null);
  const best = compared.reduce((a, c) => (!a || c.effect < a.effect ? c : a), null);
  const side = (c, word) => (c ? ' ' + word + ': ' + c.label + ', ' + signed(c.effect) + ' (' + signed(c.effect_low) + ' to ' + signed(c.effect_high) + ').' : '');
  return 'Of ' + plural(data.cases.length, 'case', 'cases') + ': ' + told + '.' + (compared.length > 1 ? side(best, 'Best') + side(worst, 'Worst') : side(worst, 'Change'));
}
function renderHead() {
  byId('title').textContent = data.a.name + ' \u2192 ' + data.b.name;
  document.title = 'Comparison: ' + data.a.name.slice(0, 40) + ' \u2192 ' + data.b.name.slice(0, 40);
  byId('subtitle').textContent = [data.a, data.b].map((x, k) => 'AB'[k] + ': ' + plural(x.cases, 'case', 'cases') + (x.created_at ? ', ' + moment(x.created_at) : '')).join('; ');
  const counts = {};
  for (const c of data.cases) counts[verdictOf(c)] = (counts[verdictOf(c)] || 0) + 1;
  put(byId('marks'), ...Object.keys(verdicts).filter((k) => counts[k]).map((k) => badge(k, counts[k])),
    known(data.gate) && h('span', { class: 'badge ' + (data.gate_failed || data.gate_undecided ? 'status-oom' : 'status-ok') }, 'gate of ' + percent(data.gate) + ' ' + data.gate_text));
  put(byId('verdict'), h('p', { class: 'lead', dir: 'auto' }, h('b', {}, answer())), [...data.statuses, ...data.notes].map((n) => h('p', { class: 'muted', dir: 'auto' }, n)));
}
function fieldTable(rows) {
  return h('div', { class: 'scroll' }, h('table', {}, h('thead', {}, h('tr', {}, ['field', 'A', 'B'].map((t) => h('th', { scope: 'col' }, t)))),
    h('tbody', {}, rows.map((d) => h('tr', {}, h('th', { scope: 'row' }, d.field), h('td', { dir: 'auto' }, d.a), h('td', { dir: 'auto' }, d.b))))));
}
function renderFilters() {
  const here = Object.keys(verdicts).filter((k) => data.cases.some((c) => verdictOf(c) === k));
  const part = byId('filters');
  part.hidden = data.cases.length < 2;
  if (part.hidden) return put(part);
  put(part, h('b', {}, 'Cases'), picker('verdict', [['all', 'all'], ...here.map((k) => [k, verdicts[k][0]])], view.verdict, (v) => setView({ verdict: v })),
    picker('order', [['given', 'as in the sweep'], ['effect', 'slowest change first']], view.order, (v) => setView({ order: v })),
    h('label', { class: 'picker' }, h('span', {}, 'words'), h('input', { type: 'search', value: view.words, onchange: (e) => setView({ words: e.target.value }) })),
    h('span', { class: 'muted', role: 'status' }, shownCases().length + ' of ' + plural(data.cases.length, 'case', 'cases')));
}

const effectLines = (c) => [c.label, ['verdict', verdicts[verdictOf(c)][0]], ...(known(c.effect) ? [['change', signed(c.effect)], [percent(c.coverage) + ' interval', signed(c.effect_low) + ' \u2013 ' + signed(c.effect_high)]] : []),
  ['A', known(c.step_ns_a) ? duration(c.step_ns_a) : c.status_a], ['B', known(c.step_ns_b) ? duration(c.step_ns_b) : c.status_b], c.note, c.interleaved === false && 'Not interleaved: what drifted on the machine between the two is in the change.'];

const rowsAtOnce = 80;
function renderEffects() {
  const part = byId('effects'), rows = shownCases().slice(0, rowsAtOnce);
  if (!data.cases.length) return put(part);
  const where = h('div', { class: 'chart' });
  put(part, heading('effects', 'Change of the step time', exportButtons(() => where.querySelector('svg'), 'comparison')),
    h('p', { class: 'muted lead' }, 'From A to B with its interval; left of the line B is faster. The band is the margin inside which two cases count as the same.' + (shownCases().length > rows.length ? ' The first ' + rowsAtOnce + ' rows; filter for others.' : '')),
    h('figure', {}, where));
  drawEffects(where, rows);
}
function drawEffects(where, rows) {
  if (!rows.length) return put(where, h('p', { class: 'muted' }, 'No case to show.'));
  const width = Math.max(280, where.clientWidth), phone = width < 620, rowHeight = phone ? 42 : 26, head = 10;
  const left = phone ? 12 : Math.min(width * 0.5, Math.max(60, ...rows.map((c) => widthOf(c.label.slice(0, 200)) + 14))), right = width - (phone ? 12 : 74);
  const reach = Math.max(0.02, ...rows.flatMap((c) => (known(c.effect) ? [Math.abs(c.effect_low), Math.abs(c.effect_high), c.margin] : [])).filter(isFinite)) * 1.1;
  const xOf = (v) => left + (Math.max(-reach, Math.min(reach, v)) + reach) / (2 * reach) * (right - left);
  const foot = head + rows.length * rowHeight, height = foot + 46;
  const svg = s('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': 'Change of the step time from A to B' });
  for (const t of ticks(reach, phone ? 1 : 3)) for (const v of t ? [t, -t] : [0]) {
    svg.append(s('path', { d: `M${xOf(v)},${head}V${foot}`, class: v ? 'grid' : 'axis' }), s('text', { x: xOf(v), y: foot + 16, class: 'tick middle' }, v ? signed(v) : '0'));
  }
  svg.append(s('text', { x: (left + right) / 2, y: height - 6, class: 'axis-name middle' }, '\u2190 B faster \u00b7 change \u00b7 B slower \u2192'));
  rows.forEach((c, k) => svg.append(effectRow(c, { left, right, y: head + k * rowHeight, width, rowHeight, phone, xOf })));
  put(where, svg);
}
function effectRow(c, g) {
  const middle = g.phone ? g.y + 30 : g.y + g.rowHeight / 2, colour = { faster: 'var(--ok)', slower: 'var(--bad)', ambiguous: 'var(--near)' }[verdictOf(c)] || 'var(--off)';
  const group = s('g', { ...interactive(() => effectLines(c).filter(Boolean), () => { byId('cases').scrollIntoView(); }, c.label + ': ' + verdicts[verdictOf(c)][0] + (known(c.effect) ? ', ' + signed(c.effect) : '')), class: 'bar-row', style: 'color:' + colour });
  group.append(s('rect', { x: 0, y: g.y + 1, width: g.width, height: g.rowHeight - 2, class: 'row-back', rx: 3 }));
  group.append(g.phone ? s('text', { x: 4, y: g.y + 15, class: 'tick' }, fitted(c.label, g.width - 10)) : s('text', { x: g.left - 10, y: middle + 4, class: 'tick end' }, fitted(c.label, g.left - 16)));
  if (!known(c.effect)) {
    group.append(s('text', { x: g.left + 6, y: middle + 4, class: 'tick' }, fitted(c.note || verdicts[verdictOf(c)][0], g.right - g.left - 12)));
    return group;
  }
  group.append(s('rect', { x: g.xOf(-c.margin), y: middle - 8, width: Math.max(1, g.xOf(c.margin) - g.xOf(-c.margin)), height: 16, class: 'band' }),
    s('path', { class: 'whisker', d: `M${g.xOf(c.effect_low)},${middle}H${g.xOf(c.effect_high)}M${g.xOf(c.effect_low)},${middle - 4}v8M${g.xOf(c.effect_high)},${middle - 4}v8` }),
    s('circle', { cx: g.xOf(c.effect), cy: middle, r: 4.5, fill: 'currentColor' }));
  if (!g.phone) group.append(s('text', { x: g.right + 10, y: middle + 4, class: 'tick' }, signed(c.effect)));
  return group;
}

function renderCases() {
  const part = byId('cases');
  if (!data.cases.length) return put(part);
  const number = (text) => h('td', { class: 'number' }, text);
  put(part, heading('cases', 'All cases'), h('div', { class: 'scroll tall', tabindex: 0, role: 'region', 'aria-label': 'Table of cases' }, h('table', { class: 'cases' },
    h('thead', {}, h('tr', {}, ['case', 'verdict', 'change', 'interval', 'A', 'B', 'peak A', 'peak B', 'samples', ''].map((t, k) => h('th', { scope: 'col', class: k > 1 && k < 9 && 'number' }, t)))),
    h('tbody', {}, shownCases().map((c) => h('tr', {}, h('th', { scope: 'row', dir: 'auto', class: 'name' }, c.label), h('td', {}, badge(verdictOf(c))), number(signed(c.effect)),
      number(known(c.effect) ? signed(c.effect_low) + ' \u2013 ' + signed(c.effect_high) : none), number(known(c.step_ns_a) ? duration(c.step_ns_a) : c.status_a), number(known(c.step_ns_b) ? duration(c.step_ns_b) : c.status_b),
      number(bytes(c.peak_bytes_a)), number(bytes(c.peak_bytes_b)), number(known(c.samples_a) ? c.samples_a + ', ' + c.samples_b : none),
      h('td', { dir: 'auto' }, [c.gate_failed && 'gate failed', c.gate_undecided && 'gate not decided', c.note, c.interleaved === false && 'not interleaved'].filter(Boolean).join('; '))))))),
  [['A', data.only_a], ['B', data.only_b]].map(([name, list]) => list.length > 0 && h('details', {}, h('summary', {}, 'Only in ' + name + ' (' + integer(list.length) + ')'), h('ul', {}, list.map((l) => h('li', { dir: 'auto' }, l))))));
}
function render() {
  hideTip();
  renderFilters();
  renderEffects();
  renderCases();
}
function start() {
  readView();
  renderHead();
  put(byId('unlike'), data.unlike.length > 0 && [heading('unlike', 'What must be equal and is not'), fieldTable(data.unlike), h('p', { class: 'muted' }, 'Settings that are meant to differ: compare with --allow NAME.')]);
  render();
  put(byId('differences'), data.warnings.length > 0 && [heading('differences', 'What should be equal and is not'), fieldTable(data.warnings)]);
  put(byId('dictionary'), heading('dictionary', 'Dictionary'), h('dl', { class: 'dictionary' }, [['change', 'Step time of B / step time of A \u2212 1, from the signed ranks of paired ratios, or from the two medians where the arms were not interleaved.'],
    ['margin', 'What counts as the same: at least 1 %, or the noise of this machine.'], ...Object.values(verdicts).map(([k, , v]) => [k, v]), ['gate', 'Fails only when B is surely slower by more than this, or was not measured where A was. Not decided where B looks slower by more and fewer than six pairs or samples are there: that does not pass either.']].map(([k, v]) => h('div', {}, h('dt', {}, k), h('dd', {}, v)))));
  put(byId('footer'), 'Made by shardscope from the two results alone. Nothing in this page loads anything from anywhere.');
  let width = innerWidth;
  addEventListener('resize', later(() => { if (innerWidth !== width) { width = innerWidth; renderEffects(); } }, 120));
  addEventListener('scroll', hideTip, { passive: true });
  addEventListener('hashchange', () => { readView(); render(); });
}
start();
