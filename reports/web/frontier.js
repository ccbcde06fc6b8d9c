// Time against memory: what a faster step costs in peak bytes. Lines join cases that differ in one setting, prefetch where it varies; the front
// is what no other case beats in both.
const prefetchAxes = ['forward_prefetch', 'backward_prefetch', 'max_inflight', 'reshard_after_forward'];
function frontierAxis() {
  const free = freeAxes();
  return free.find((a) => a.name === state.along) || prefetchAxes.map((name) => free.find((a) => a.name === name)).find(Boolean) || xAxis();
}
function frontierLines() {
  const axis = frontierAxis(), lines = new Map();
  const open = otherAxes().filter((a) => !axis || a.i !== axis.i);
  for (const i of casesInView()) {
    const c = caseAt(i);
    if (!open.every((a) => onlyOf(a) === null || c.at[a.i] === onlyOf(a))) continue;
    const key = freeAxes().filter((a) => !axis || a.i !== axis.i).map((a) => c.at[a.i]).join(' ');
    if (!lines.has(key)) lines.set(key, { label: axis ? labelOf(c, axis.i) : 'all cases', cases: [] });
    lines.get(key).cases.push(i);
  }
  if (axis) for (const line of lines.values()) line.cases.sort((a, b) => caseAt(a).at[axis.i] - caseAt(b).at[axis.i]);
  return [...lines.values()];
}

function renderFrontier() {
  const part = byId('frontier');
  if (!workload()) return put(part);
  const lines = frontierLines();
  const timed = lines.flatMap((l) => l.cases).filter((i) => stepValue(caseAt(i)) !== null && caseAt(i).peak_bytes);
  if (!timed.length) return put(part);
  const axis = frontierAxis(), where = h('div', { class: 'chart' });
  put(part, heading('frontier', 'Time against memory',
    freeAxes().length > 1 && picker('join along', freeAxes().map((a) => [a.name, shortAxis(a.name)]), axis.name, (v) => change({ along: v })),
    exportButtons(() => where.querySelector('svg'), 'time-memory')),
  h('p', { class: 'muted lead' }, (axis ? 'Lines join cases that differ in ' + shortAxis(axis.name) + ' only. ' : '') +
    'The stepped line is the front: no case is both ' + (state.y === 'rate' ? 'of higher throughput' : 'faster') + ' and smaller than those on it.' + (lines.some((l) => l.cases.some((i) => caseAt(i).status === 'oom' && caseAt(i).peak_bytes)) ? ' Crosses at the top ran out of memory there.' : '') + emulatedNote()),
  h('figure', {}, where));
  drawFrontier(where, lines, axis);
}

function drawFrontier(where, lines, axis) {
  const width = Math.max(280, where.clientWidth), height = width < 520 ? 320 : 360, left = 62, bottom = height - 50, right = width - 16;
  const points = lines.flatMap((line, l) => line.cases.map((i) => ({ i, l, c: caseAt(i), v: stepValue(caseAt(i)) }))).filter((p) => p.c.peak_bytes > 0);
  const timed = points.filter((p) => p.v !== null), failed = points.filter((p) => p.c.status === 'oom');
  const budgets = new Set(points.map((p) => p.c.budget).filter((b) => b > 0)), budget = budgets.size === 1 ? [...budgets][0] : 0;
  const topOf = failed.length ? 34 : 14;
  const most = Math.max(...timed.map((p) => p.v)) * 1.06, memory = Math.max(budget, ...points.map((p) => p.c.peak_bytes)) * 1.04;
  const yScale = scaleFormat(state.y === 'rate' ? 'rate' : 'time', most), xScale = scaleFormat('bytes', memory);
  const yOf = (v) => bottom - v / most * (bottom - topOf - 8), xOf = (b) => left + b / memory * (right - left);
  const svg = s('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': 'Step time against peak memory' });
  for (const v of ticks(most, 5)) svg.append(s('path', { d: `M${left},${yOf(v)}H${right}`, class: v ? 'grid' : 'axis' }), s('text', { x: left - 8, y: yOf(v) + 4, class: 'tick end' }, yScale.text(v)));
  for (const v of ticks(memory, width < 520 ? 3 : 6, 1024)) svg.append(s('path', { d: `M${xOf(v)},${topOf}V${bottom}`, class: v ? 'grid' : 'axis' }), s('text', { x: xOf(v), y: bottom + 18, class: 'tick middle' }, xScale.text(v)));
  svg.append(s('text', { x: (left + right) / 2, y: height - 8, class: 'axis-name middle' }, 'peak memory (' + xScale.unit + ')'),
    s('text', { class: 'axis-name middle', transform: `translate(12 ${(bottom + topOf) / 2}) rotate(-90)` }, state.y === 'rate' ? 'tokens per second' : 'step time (' + yScale.unit + ')'));
  if (failed.length) svg.append(s('rect', { x: left, y: 4, width: right - left, height: 22, class: 'strip' }), s('text', { x: left - 8, y: 19, class: 'tick end' }, 'OOM'));
  if (budget) svg.append(s('path', { d: `M${xOf(budget)},${topOf - 6}V${bottom}`, class: 'limit' }, s('title', {}, 'budget ' + bytes(budget))));
  drawFront(svg, timed, { xOf, yOf, bottom, right, topOf });
  const taken = [];
  for (let l = 0; l < lines.length; l += 1) svg.append(frontierLine(points.filter((p) => p.l === l), l, { xOf, yOf, axis, taken, right, labels: timed.length <= 60 }));
  put(where, svg);
}
// From the smallest case on: each step leads down to the next case that is larger and faster.
function drawFront(svg, timed, g) {
  const here = new Map(timed.map((p) => [p.i, p]));
  const front = workload().pareto.filter((i) => here.has(i)).map((i) => here.get(i)).sort((a, b) => a.c.peak_bytes - b.c.peak_bytes);
  if (!front.length) return;
  let d = `M${g.xOf(front[0].c.peak_bytes)},${state.y === 'rate' ? g.bottom : g.topOf}`;
  for (const p of front) d += `H${g.xOf(p.c.peak_bytes)}V${g.yOf(p.v)}`;
  svg.append(s('path', { d: d + `H${g.right}`, class: 'front' }));
}
function frontierLine(points, l, g) {
  const good = points.filter((p) => p.v !== null), colour = lineColour(l);
  const group = s('g', { class: 'line-mark', style: 'color:' + colour });
  if (good.length > 1) group.append(s('path', { class: 'line thin', d: 'M' + good.map((p) => g.xOf(p.c.peak_bytes) + ',' + g.yOf(p.v)).join('L') }));
  for (const p of points) {
    if (p.v === null && p.c.status !== 'oom') continue;
    const x = g.xOf(p.c.peak_bytes), y = p.v === null ? 15 : g.yOf(p.v), onFront = workload().pareto.includes(p.i);
    const mark = s('g', { ...interactive(() => [...stepLines(p.c), onFront && 'On the front: no case is both faster and smaller.'], () => choose(p.i, false),
      labelOf(p.c) + ': ' + (p.v === null ? 'out of memory' : duration(p.c.step_ns)) + ', ' + bytes(p.c.peak_bytes) + (onFront ? ', on the front' : '')), class: 'point' + (p.i === state.case ? ' chosen' : '') + (p.c.predicted ? ' hollow' : '') });
    mark.append(s('circle', { cx: x, cy: y, r: 10, class: 'halo' }), p.v === null ? s('path', { class: 'cross', d: `M${x - 4},${y - 4}L${x + 4},${y + 4}M${x + 4},${y - 4}L${x - 4},${y + 4}` }) : markers[l % 4](x, y, onFront ? 5 : 3.6));
    group.append(mark);
    if (p.v !== null && g.labels && g.axis) placeLabel(group, valueOf(p.c, g.axis.i), x, y, g);
  }
  return group;
}
// A label beside its point, if it lies upon no other.
function placeLabel(group, text, x, y, g) {
  const shown = fitted(text, 90, 11), width = widthOf(shown, 11) + 4;
  const box = [x + 7, y - 14, x + 7 + width, y + 2];
  if (box[2] > g.right || g.taken.some((t) => box[0] < t[2] + 2 && box[2] > t[0] - 2 && box[1] < t[3] + 2 && box[3] > t[1] - 2)) return;
  g.taken.push(box);
  group.append(s('text', { x: x + 8, y: y - 3, class: 'tick small' }, shown));
}
