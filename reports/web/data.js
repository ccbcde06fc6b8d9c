// The page's data and its state. The state stands in the URL fragment, so that a link or a reload keeps it.
const report = JSON.parse(byId('data').textContent);
report.sweeps.forEach((sw, i) => {
  sw.timelines = report.timelines[i];
  sw.cases.forEach((c, k) => { c.timeline = sw.timelines.packed[k]; c.clock_ns = sw.timelines.clock_ns[k]; });
});

const classes = [
  ['compute', 'compute', 'model compute, no communication in flight'],
  ['overlapped', 'overlapped compute', 'model compute while a collective is in flight'],
  ['exposed_all_gather_forward', 'exposed all-gather, forward', 'the compute lane waits for an all-gather of the forward pass'],
  ['exposed_all_gather_backward', 'exposed all-gather, backward', 'the same in backward or recompute'],
  ['exposed_reduce_scatter', 'exposed reduce-scatter', 'the compute lane waits for a reduce-scatter'],
  ['exposed_other', 'exposed, other', 'all-reduce, broadcast and other collectives that the compute lane waits for'],
  ['copy', 'copy', 'packing, unpacking and casts on the critical path'],
  ['host', 'host', 'the next work was not issued yet, or had just been issued'],
  ['memory_wait', 'memory wait', 'no free slot, the memory gate, or an allocator retry'],
  ['optimizer', 'optimizer', 'optimizer and clipping'],
  ['idle', 'idle', 'none of the others is provable'],
].map(([key, label, meaning], i) => ({ key, label, meaning, colour: 'var(--c' + i + ')', i }));
const exposedClasses = [2, 3, 4, 5];
const categories = ['parameters', 'gradients', 'optimizer state', 'unsharded parameters', 'reduce buffers', 'activations', 'other']
  .map((label, i) => ({ label, colour: 'var(--m' + i + ')' }));
const passes = ['', 'forward', 'backward', 'optimizer'];
const laneNames = ['host', 'compute', 'all-gather', 'reduce-scatter', 'all-reduce'];
const kinds = ['compute', 'optimizer', 'copy', 'all-gather', 'reduce-scatter', 'all-reduce', 'other collective', 'wait', 'memory wait', 'step'];
const statuses = {
  ok: ['ok', 'ran to its end'], near_oom: ['near OOM', 'ran, with retries or within 5 % of the budget'], oom: ['OOM', 'out of memory'],
  timeout: ['timeout', 'a rank waited too long'], crashed: ['crashed', 'a rank ended by itself'], comm_error: ['comm error', 'ranks lost or disagreed'],
  config_error: ['config error', 'settings refused'], skipped: ['skipped', 'not run'],
};
const ran = (c) => c.status === 'ok' || c.status === 'near_oom';

const state = { sweep: 0, workload: 0, case: null, x: null, y: 'step', parts: 'all', scale: 'absolute', order: 'axis', hx: null, hy: null, hm: 'step', along: null, unit: -1, zoom: null, only: {} };

const sweep = () => report.sweeps[state.sweep];
const workload = () => (sweep() ? sweep().workloads[state.workload] : undefined);
const caseAt = (i) => sweep().cases[i];
const casesInView = () => (workload() ? workload().cases : []);
const selected = () => (known(state.case) && sweep() ? caseAt(state.case) : undefined);

// Axes of how (no workload) with two values or more in this view.
function freeAxes() {
  if (!sweep()) return [];
  return sweep().axes.map((axis, i) => ({ ...axis, i })).filter((axis) => !axis.workload &&
    new Set(casesInView().map((c) => caseAt(c).at[axis.i])).size > 1);
}
const valueText = (text) => (text === '' ? '(none)' : text);
const valueOf = (c, axis) => valueText(sweep().axes[axis].values[c.at[axis]] ?? '');
const shortAxis = (name) => name.replace(/_/g, ' ');
const axisLabel = (axis, text) => (axis.name === 'wrap' || axis.name === 'strategy' ? text : shortAxis(axis.name) + ' ' + text);
const labelOf = (c, except = -1) => freeAxes().filter((a) => a.i !== except).map((a) => axisLabel(a, valueOf(c, a.i))).join(', ') || (except < 0 ? c.id : 'all cases');

function xAxis() {
  const free = freeAxes();
  return free.find((a) => a.name === state.x) || free.find((a) => a.i === sweep().granularity) || free[0];
}
const otherAxes = () => { const x = xAxis(); return freeAxes().filter((a) => !x || a.i !== x.i); };

// Filters: at most eight lines at first; the axes that are too many stand at the value of the best case.
const manyLines = 8;
function defaultOnly() {
  const only = {};
  let lines = 1;
  const best = known(workload().best) ? caseAt(workload().best) : caseAt(casesInView()[0]);
  for (const axis of otherAxes()) {
    const here = new Set(casesInView().map((c) => caseAt(c).at[axis.i]));
    if (lines * here.size <= manyLines) lines *= here.size; else only[axis.name] = best.at[axis.i];
  }
  return only;
}
const onlyOf = (axis) => (state.only && axis.name in state.only ? state.only[axis.name] : null);
const shown = () => casesInView().filter((c) => otherAxes().every((axis) => onlyOf(axis) === null || caseAt(c).at[axis.i] === onlyOf(axis)));

// Lines: cases that share everything but the x axis, in the order of x.
function linesShown() {
  const x = xAxis();
  const lines = new Map();
  for (const i of shown()) {
    const c = caseAt(i);
    const key = otherAxes().map((a) => c.at[a.i]).join(' ');
    if (!lines.has(key)) lines.set(key, { label: '', cases: [] });
    lines.get(key).cases.push(i);
  }
  const named = [...lines.values()];
  for (const line of named) {
    if (x) line.cases.sort((a, b) => caseAt(a).at[x.i] - caseAt(b).at[x.i]);
    line.label = lineLabel(caseAt(line.cases[0]));
  }
  return named;
}
const lineLabel = (c) => otherAxes().filter((a) => onlyOf(a) === null).map((a) => axisLabel(a, valueOf(c, a.i))).join(', ');

const unitName = (c, unit) => {
  const row = unit >= 0 ? (sweep().unit_tables[c.unit_table] || [])[unit] : undefined;
  return row ? row[0] || '(root)' : unit >= 0 ? 'unit ' + unit : '';
};
const exposedOf = (c) => (c.partition ? exposedClasses.reduce((sum, i) => sum + c.partition[i], 0) : null);
const marksOf = (c) => [c.emulated && 'emulated', c.predicted && 'predicted'].filter(Boolean);
function emulatedNote() {
  const all = shown().map(caseAt), some = all.filter((c) => c.emulated).length;
  return !some ? '' : ' The network was emulated in ' + (some === all.length ? 'all of these cases.' : some + ' of these ' + all.length + ' cases.');
}
const whyNot = (c) => c.status === 'oom' && c.peak_cause ? c.peak_cause : c.reason || statuses[c.status][1];

function readState() {
  const q = new URLSearchParams(location.hash.slice(1));
  const number = (name, size) => { const v = Number(q.get(name)); return Number.isInteger(v) && v >= 0 && v < size ? v : 0; };
  state.sweep = number('sweep', report.sweeps.length);
  state.workload = number('workload', sweep() ? sweep().workloads.length : 0);
  state.x = q.get('x');
  state.y = ['rate', 'step'].includes(q.get('y')) ? q.get('y') : usualMeasure();
  state.parts = q.get('parts') === 'exposed' ? 'exposed' : 'all';
  state.scale = q.get('scale') === 'percent' ? 'percent' : 'absolute';
  state.order = ['time', 'exposed'].includes(q.get('order')) ? q.get('order') : 'axis';
  for (const name of ['hx', 'hy', 'along']) state[name] = q.get(name);
  state.hm = Object.hasOwn(heatMeasures, q.get('hm') || '') ? q.get('hm') : usualMeasure();
  state.unit = q.has('unit') ? number('unit', 1e6) : -1;
  const [from, to] = (q.get('zoom') || '').split('-').map(Number);
  state.zoom = to > from && from >= 0 ? [from, to] : null;
  const id = q.get('case');
  const found = sweep() ? casesInView().find((i) => caseAt(i).id === id) : undefined;
  state.case = found ?? startCase();
  if (!workload()) return;
  state.only = defaultOnly();
  for (const axis of otherAxes()) {
    const v = q.get('only.' + axis.name);
    if (v === '*') delete state.only[axis.name];
    else if (v !== null && Number(v) < axis.values.length) state.only[axis.name] = Number(v);
  }
}
// Cases that do different amounts of work per step compare by rate.
const usualMeasure = () => (workload() && workload().per_token ? 'rate' : 'step');
function startCase() {
  const w = workload();
  return w ? w.best ?? w.cases[0] ?? null : null;
}
let written = null;
function writeState() {
  const q = new URLSearchParams();
  if (state.sweep) q.set('sweep', state.sweep);
  if (state.workload) q.set('workload', state.workload);
  if (selected()) q.set('case', selected().id);
  if (state.x) q.set('x', state.x);
  for (const [name, normal] of [['y', usualMeasure()], ['parts', 'all'], ['scale', 'absolute'], ['order', 'axis'], ['hx', null], ['hy', null], ['hm', usualMeasure()], ['along', null], ['unit', -1]]) {
    if (state[name] !== normal) q.set(name, state[name]);
  }
  if (state.zoom) q.set('zoom', state.zoom.map(Math.round).join('-'));
  if (workload()) {
    const normal = defaultOnly();
    for (const axis of otherAxes()) {
      const now = onlyOf(axis), then = axis.name in normal ? normal[axis.name] : null;
      if (now !== then) q.set('only.' + axis.name, now === null ? '*' : now);
    }
  }
  written = '#' + q.toString();
  if (location.hash !== written) location.replace(written);
}
