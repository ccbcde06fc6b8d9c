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

// The values that tell rows apart, a column for each axis, as far as they take less than half of the width.
function labelColumns(rows, width) {
  const x = xAxis(), axes = [...(x ? [x] : []), ...otherAxes().filter((a) => onlyOf(a) === null)];
  const most = width * 0.46 / Math.max(1, axes.length);
  let at = 0;
  const columns = axes.map((axis) => {
    const words = shortAxis(axis.name).split(' ');
    const names = words.length > 1 ? [words[0], words.slice(1).join(' ')] : ['', words[0]];
    const widest = Math.max(...names.map((n) => widthOf(n, 11.5)), ...rows.map((r) => widthOf(valueOf(caseAt(r.i), axis.i).slice(0, 60), 12.4)));
    const column = { axis, names, x: at + 6, width: Math.min(most, widest + 16) };
    at += column.width;
    return column;
  });
  return { columns, width: axes.length ? at + 10 : 6 };
}

// rows: [{i, label, parts: [{value, colour, label, text}], total, text, note, hatched}]; limit: {value, text}
function drawBars(where, rows, { kind, axisName, limit, emptyText }) {
  const width = Math.max(280, where.clientWidth);
  const phone = width < 620;
  const labels = phone ? { columns: [], width: 6 } : labelColumns(rows, width);
  const top = Math.max(limit ? limit.value * 1.02 : 0, ...rows.map((r) => r.total || 0)) || 1;
  const scale = scaleFormat(kind, top);
  const right = Math.max(44, ...rows.map((r) => (r.total ? widthOf(r.text) + 14 : 0)));
  const span = width - labels.width - right;
  const head = limit && phone ? 24 : 38, rowHeight = phone ? 42 : 26, barHeight = 16;
  const height = head + rows.length * rowHeight + 42;
  const xOf = (v) => labels.width + (v / top) * span;
  const svg = s('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': axisName });
  const foot = head + rows.length * rowHeight + 2;
  for (const v of !rows.some((r) => r.total) ? [] : ticks(top, phone ? 3 : 6, kind === 'bytes' ? 1024 : 10)) {
    svg.append(s('path', { d: `M${xOf(v)},${head}V${foot}`, class: v ? 'grid' : 'axis' }), s('text', { x: xOf(v), y: foot + 15, class: 'tick middle' }, scale.text(v)));
  }
  svg.append(s('text', { x: labels.width + span / 2, y: height - 4, class: 'axis-name middle' }, axisName + (rows.some((r) => r.total) ? ' (' + scale.unit + ')' : '')));
  for (const column of labels.columns) {
    column.names.forEach((name, k) => svg.append(s('text', { x: column.x, y: 14 + 14 * k, class: 'column-name' }, fitted(name, column.width - 6, 11.5))));
  }
  const geometry = { head, phone, labels, barHeight, rowHeight, xOf, width, span };
  const words = s('g', { class: 'bar-words' });   // above the bars and the line of the budget
  rows.forEach((row, k) => {
    const own = s('g', { class: row.i === state.case && 'chosen' });
    svg.append(drawBar(row, { ...geometry, y: head + k * rowHeight, before: k ? rows[k - 1] : null }, own));
    words.append(own);
  });
  if (limit) {
    const x = xOf(limit.value), end = x > width * 0.6;
    svg.append(s('path', { d: `M${x},${head - 8}V${foot}`, class: 'limit' }), s('text', { x: end ? x + 4 : x - 4, y: head - 14, class: 'tick warn ' + (end ? 'end' : '') }, limit.text));
  }
  svg.append(words);
  put(where, rows.length ? svg : h('p', { class: 'muted' }, emptyText));
}

function drawLabels(group, row, g, barTop) {
  if (g.phone) return group.append(s('text', { x: 4, y: g.y + 14, class: 'tick' }, fitted(row.label, g.width - 10)));
  const c = caseAt(row.i);
  g.labels.columns.forEach((column, k) => {
    const text = valueOf(c, column.axis.i);
    const again = k === 0 && state.order === 'axis' && g.before && caseAt(g.before.i).at[column.axis.i] === c.at[column.axis.i];
    if (again) return;
    if (k === 0 && g.before && state.order === 'axis') group.append(s('path', { d: `M0,${g.y}H${g.labels.width}`, class: 'grid' }));
    group.append(s('text', { x: column.x, y: barTop + 12, class: 'tick' + (k ? '' : ' strong') }, fitted(text, column.width - 8)));
  });
}

function drawBar(row, g, words) {
  const c = caseAt(row.i);
  const lines = () => [row.label, ...(row.total ? [['total', row.text]] : []), ...row.parts.filter((p) => p.value > 0).map((p) => [p.label, p.text, p.colour]), row.note].filter(Boolean);
  const group = s('g', { ...interactive(lines, () => choose(row.i, false), row.label + ': ' + (row.note || row.text)), class: 'bar-row' + (row.i === state.case ? ' chosen' : '') });
  const barTop = g.y + (g.phone ? 19 : (g.rowHeight - g.barHeight) / 2);
  group.append(s('rect', { x: 0, y: g.y + 1, width: g.width, height: g.rowHeight - 2, class: 'row-back', rx: 3 }));
  drawLabels(words, row, g, barTop);
  let sum = 0;
  for (const p of row.parts) {
    const from = g.xOf(sum), to = g.xOf(sum + p.value);
    sum += p.value;
    if (to - from < 0.05) continue;
    const gap = to - from > 3 ? 0.8 : 0;
    group.append(s('rect', { x: from, y: barTop, width: Math.max(0.3, to - from - gap), height: g.barHeight, style: 'fill:' + p.colour }));
  }
  if (row.hatched) group.append(s('rect', { x: g.xOf(0), y: barTop, width: Math.max(2, g.xOf(row.total) - g.xOf(0)), height: g.barHeight, fill: 'url(#hatch)', class: 'hatched' }));
  if (row.total) words.append(s('text', { x: g.xOf(row.total) + 6, y: barTop + 12, class: 'tick' }, row.text));
  if (row.note) drawNote(words, row, g, barTop, c);
  return group;
}

// A note beside a full bar goes onto it; else it starts where the bar ends.
function drawNote(group, row, g, barTop, c) {
  const after = row.total ? g.xOf(row.total) + 6 + widthOf(row.text) + 10 : g.xOf(0) + 6;
  const inside = row.total && g.width - after < Math.min(170, widthOf(row.note) + 8);
  const x = inside ? g.xOf(0) + 6 : after;
  const text = fitted(row.note, (inside ? g.xOf(row.total) : g.width) - x - 6);
  if (inside) group.append(s('rect', { x: x - 3, y: barTop + 1.5, width: widthOf(text) + 6, height: g.barHeight - 3, class: 'note-back', rx: 2 }));
  group.append(s('text', { x, y: barTop + 12, class: 'tick status-ink-' + c.status }, text));
}

const partLegend = (list) => h('ul', { class: 'legend' }, list.map((k) => h('li', { title: k.meaning }, h('i', { class: 'swatch', style: 'background:' + k.colour }), k.label)));
function capped(rows, part, redraw) {
  if (rows.length <= rowsAtOnce || part.dataset.all) return [rows, null];
  return [rows.slice(0, rowsAtOnce), h('button', { type: 'button', onclick: () => { part.dataset.all = '1'; redraw(); } }, 'Show all ' + rows.length + ' rows')];
}

function renderPartition() {
  const part = byId('partition');
  if (!workload()) return put(part);
  const where = h('div', { class: 'chart' });
  const used = state.parts === 'exposed' ? exposedClasses.map((i) => classes[i]) : classes;
  const [rows, more] = capped(barRows(), part, renderPartition);
  put(part, heading('partition', state.parts === 'exposed' ? 'Exposed communication' : 'Where the step goes',
    choice('Parts', [['all', 'all classes'], ['exposed', 'exposed only']], state.parts, (v) => change({ parts: v })),
    choice('Scale', [['absolute', 'time'], ['percent', 'percent']], state.scale, (v) => change({ scale: v })),
    choice('Order', [['axis', 'axis order'], ['time', 'fastest first'], ['exposed', 'most exposed first']], state.order, (v) => change({ order: v })),
    exportButtons(() => where.querySelector('svg'), 'partition')),
  h('p', { class: 'muted lead' }, 'The traced step of median length on the slowest rank. Every nanosecond belongs to one class; exposed communication is time in which the compute lane waits for a collective.' + emulatedNote()),
  h('figure', {}, partLegend(used), where, more));
  drawBars(where, rows.map((i) => partitionRow(i, used)), { kind: state.scale === 'percent' ? 'percent' : 'time', axisName: state.scale === 'percent' ? 'part of the traced step' : 'traced step', emptyText: 'No case to show.' });
}
function partitionRow(i, used) {
  const c = caseAt(i), label = labelOf(c);
  if (!c.partition) return { i, label, parts: [], total: 0, text: '', note: ran(c) ? 'not traced' : statuses[c.status][0] + ': ' + whyNot(c) };
  const whole = c.traced_step_ns || 1, share = state.scale === 'percent';
  const parts = used.map((k) => ({ value: c.partition[k.i] / (share ? whole : 1), colour: k.colour, label: k.label, text: duration(c.partition[k.i]) + '  ' + percent(c.partition[k.i] / whole) }));
  const total = parts.reduce((sum, p) => sum + p.value, 0);
  return { i, label, parts, total, text: (share ? percent(total) : duration(total)) + (c.predicted ? ' (predicted)' : '') };
}

function renderMemory() {
  const part = byId('memory');
  if (!workload()) return put(part);
  const where = h('div', { class: 'chart' });
  const [indices, more] = capped(barRows(), part, renderMemory);
  const budgets = new Set(indices.map((i) => caseAt(i).budget).filter((b) => b > 0));
  const limit = budgets.size === 1 ? { value: [...budgets][0], text: 'budget ' + bytes([...budgets][0]) } : null;
  put(part, heading('memory', 'Peak memory', exportButtons(() => where.querySelector('svg'), 'memory')),
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
