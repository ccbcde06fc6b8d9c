// Horizontal stacked bars, a row for each case: where the time of the traced step went, and what filled memory at its peak.
function barRows() {
  const rows = linesShown().flatMap((line) => line.cases);
  const x = xAxis();
  if (x) rows.sort((a, b) => caseAt(a).at[x.i] - caseAt(b).at[x.i]);
  if (state.order === 'time') rows.sort((a, b) => (caseAt(a).step_ns ?? Infinity) - (caseAt(b).step_ns ?? Infinity));
  if (state.order === 'exposed') rows.sort((a, b) => (exposedOf(caseAt(b)) ?? -1) - (exposedOf(caseAt(a)) ?? -1));
  return rows;
}
const rowsAtOnce = 60;

// rows: [{i, label, parts: [{value, colour, label}], total, text, note, hatched}]; limit: {value, text}
function drawBars(where, rows, { kind, axisName, limit, emptyText }) {
  const width = Math.max(280, where.clientWidth);
  const phone = width < 620;
  const labelWidth = phone ? 0 : Math.min(330, Math.max(60, ...rows.map((r) => widthOf(r.label.slice(0, 200)) + 14)));
  const top = Math.max(limit ? limit.value * 1.02 : 0, ...rows.map((r) => r.total || 0)) || 1;
  const scale = scaleFormat(kind, top);
  const right = Math.max(44, ...rows.map((r) => (r.total ? widthOf(r.text) + 14 : 0)));
  const span = width - labelWidth - right;
  const rowHeight = phone ? 42 : 26, barHeight = 16, head = limit ? 26 : 8;
  const height = head + rows.length * rowHeight + 42;
  const xOf = (v) => labelWidth + (v / top) * span;
  const svg = s('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': axisName });
  const foot = head + rows.length * rowHeight + 2;
  for (const v of ticks(top, phone ? 3 : 6, kind === 'bytes' ? 1024 : 10)) {
    svg.append(s('path', { d: `M${xOf(v)},${head}V${foot}`, class: v ? 'grid' : 'axis' }), s('text', { x: xOf(v), y: foot + 15, class: 'tick middle' }, scale.text(v)));
  }
  svg.append(s('text', { x: labelWidth + span / 2, y: height - 4, class: 'axis-name middle' }, axisName + ' (' + scale.unit + ')'));
  rows.forEach((row, k) => svg.append(drawBar(row, { y: head + k * rowHeight, phone, labelWidth, barHeight, rowHeight, xOf, width, span })));
  if (limit) {
    const x = xOf(limit.value), end = x > width * 0.6;
    svg.append(s('path', { d: `M${x},${head - 6}V${foot}`, class: 'limit' }), s('text', { x: end ? x + 4 : x - 4, y: 12, class: 'tick warn ' + (end ? 'end' : '') }, limit.text));
  }
  where.replaceChildren(rows.length ? svg : h('p', { class: 'muted' }, emptyText));
}

function drawBar(row, g) {
  const c = caseAt(row.i);
  const lines = () => [row.label, ...(row.total ? [[ 'total', row.text ]] : []), ...row.parts.filter((p) => p.value > 0).map((p) => [p.label, p.text, p.colour]), row.note].filter(Boolean);
  const group = s('g', { ...interactive(lines, () => choose(row.i, false), row.label + ': ' + (row.note || row.text)), class: 'bar-row' + (row.i === state.case ? ' chosen' : '') });
  const barTop = g.y + (g.phone ? 19 : (g.rowHeight - g.barHeight) / 2);
  group.append(s('rect', { x: 0, y: g.y + 1, width: g.width, height: g.rowHeight - 2, class: 'row-back', rx: 3 }));
  group.append(g.phone ? s('text', { x: 4, y: g.y + 14, class: 'tick' }, fitted(row.label, g.width - 10)) :
    s('text', { x: g.labelWidth - 8, y: barTop + 12, class: 'tick end' }, fitted(row.label, g.labelWidth - 12)));
  let sum = 0;
  for (const p of row.parts) {
    const from = g.xOf(sum), to = g.xOf(sum + p.value);
    sum += p.value;
    if (to - from < 0.05) continue;
    const gap = to - from > 3 ? 0.8 : 0;
    group.append(s('rect', { x: from, y: barTop, width: Math.max(0.3, to - from - gap), height: g.barHeight, style: 'fill:' + p.colour }));
  }
  if (row.hatched) group.append(s('rect', { x: g.xOf(0), y: barTop, width: Math.max(2, g.xOf(row.total) - g.xOf(0)), height: g.barHeight, fill: 'url(#hatch)', class: 'hatched' }));
  const textAt = g.xOf(row.total || 0) + 6;
  if (row.total) group.append(s('text', { x: textAt, y: barTop + 12, class: 'tick' }, row.text));
  if (row.note) {
    // A note beside a full bar goes onto it; else it starts where the bar ends.
    const inside = row.total && g.width - textAt - widthOf(row.text) < 170;
    const x = inside ? g.xOf(0) + 6 : row.total ? textAt + widthOf(row.text) + 10 : g.xOf(0) + 6;
    const room = (inside ? g.xOf(row.total) : g.width) - x - 6;
    const text = fitted(row.note, room);
    if (inside) group.append(s('rect', { x: x - 3, y: barTop + 1.5, width: widthOf(text) + 6, height: g.barHeight - 3, class: 'note-back', rx: 2 }));
    group.append(s('text', { x, y: barTop + 12, class: 'tick status-ink-' + c.status }, text));
  }
  return group;
}

const partLegend = (list) => h('ul', { class: 'legend' }, list.map((k) => h('li', { title: k.meaning }, h('i', { class: 'swatch', style: 'background:' + k.colour }), k.label)));
function capped(rows, part, redraw) {
  if (rows.length <= rowsAtOnce || part.dataset.all) return [rows, null];
  return [rows.slice(0, rowsAtOnce), h('button', { type: 'button', onclick: () => { part.dataset.all = '1'; redraw(); } }, 'Show all ' + rows.length + ' rows')];
}

function renderPartition() {
  const part = byId('partition');
  if (!workload()) return part.replaceChildren();
  const where = h('div', { class: 'chart' });
  const used = state.parts === 'exposed' ? exposedClasses.map((i) => classes[i]) : classes;
  const [rows, more] = capped(barRows(), part, renderPartition);
  part.replaceChildren(heading('partition', state.parts === 'exposed' ? 'Exposed communication' : 'Where the step goes',
    choice('Parts', [['all', 'all classes'], ['exposed', 'exposed only']], state.parts, (v) => change({ parts: v })),
    choice('Scale', [['absolute', 'time'], ['percent', 'percent']], state.scale, (v) => change({ scale: v })),
    choice('Order', [['axis', 'axis order'], ['time', 'fastest first'], ['exposed', 'most exposed first']], state.order, (v) => change({ order: v })),
    exportButtons(() => where.querySelector('svg'), 'partition')),
  h('p', { class: 'muted lead' }, 'The traced step of median length on the slowest rank. Every nanosecond belongs to one class; exposed communication is time in which the compute lane waits for a collective.'),
  h('figure', {}, partLegend(used), where, more));
  drawBars(where, rows.map((i) => partitionRow(i, used)), { kind: state.scale === 'percent' ? 'percent' : 'time', axisName: state.scale === 'percent' ? 'part of the traced step' : 'traced step', emptyText: 'No case to show.' });
}
function partitionRow(i, used) {
  const c = caseAt(i), label = labelOf(c);
  if (!c.partition) return { i, label, parts: [], total: 0, text: '', note: ran(c) ? 'not traced' : statuses[c.status][0] + ': ' + whyNot(c) };
  const whole = c.traced_step_ns || 1, share = state.scale === 'percent';
  const parts = used.map((k) => ({ value: c.partition[k.i] / (share ? whole : 1), colour: k.colour, label: k.label, text: duration(c.partition[k.i]) + '  ' + percent(c.partition[k.i] / whole) }));
  const total = parts.reduce((sum, p) => sum + p.value, 0);
  return { i, label, parts, total, text: share ? percent(total) : duration(total) };
}

function renderMemory() {
  const part = byId('memory');
  if (!workload()) return part.replaceChildren();
  const where = h('div', { class: 'chart' });
  const [indices, more] = capped(barRows(), part, renderMemory);
  const budgets = new Set(indices.map((i) => caseAt(i).budget).filter((b) => b > 0));
  const limit = budgets.size === 1 ? { value: [...budgets][0], text: 'budget ' + bytes([...budgets][0]) } : null;
  part.replaceChildren(heading('memory', 'Peak memory', exportButtons(() => where.querySelector('svg'), 'memory')),
    h('p', { class: 'muted lead' }, 'Live bytes of the fullest rank at the instant of its peak, by category. ' + (limit ? 'The line is the budget; hatched cases passed it.' : budgets.size ? 'Budgets differ between the cases.' : 'No budget was set.')),
    h('figure', {}, partLegend(categories), where, more), boundaryTable());
  drawBars(where, indices.map(memoryRow), { kind: 'bytes', axisName: 'live bytes at the peak', limit, emptyText: 'No case to show.' });
}
function memoryRow(i) {
  const c = caseAt(i), label = labelOf(c), total = c.peak_bytes || 0;
  const parts = (c.memory || []).map((v, k) => ({ value: v, colour: categories[k].colour, label: categories[k].label, text: bytes(v) + '  ' + percent(v / (total || 1)) }));
  const sum = parts.reduce((all, p) => all + p.value, 0);
  const failed = !ran(c);
  return { i, label, parts: sum > 0 ? parts : total ? [{ value: total, colour: 'var(--m6)', label: 'live bytes', text: bytes(total) }] : [], total: sum || total, text: sum || total ? bytes(sum || total) : '',
    note: failed ? statuses[c.status][0] + ': ' + whyNot(c) : c.status === 'near_oom' ? 'near OOM' : '', hatched: c.status === 'oom' };
}
