// The selected case: its numbers, its partition, its timeline, its units and ranks, the command to run it again.
function renderCase() {
  const part = byId('case'), c = selected();
  if (!c) return put(part);
  const options = casesInView().map((i) => [i, labelOf(caseAt(i)) + (ran(caseAt(i)) ? '' : ' (' + statuses[caseAt(i).status][0] + ')')]);
  const where = h('div', { class: 'timeline' });
  const units = h('div', {});
  put(part, 
    heading('case', 'Case and timeline', picker('Case', options, state.case, (v) => choose(Number(v), false))),
    h('p', { class: 'case-title' }, statusBadge(c.status), marksOf(c).map((m) => h('span', { class: 'badge mark' }, m)), h('b', { dir: 'auto' }, labelOf(c)), h('code', { dir: 'auto' }, c.id)),
    c.reason && h('p', { class: 'reason', dir: 'auto' }, c.reason),
    h('dl', { class: 'tiles' }, tiles(c).map(([name, value, more]) => h('div', {}, h('dt', {}, name), h('dd', {}, value, more && h('small', { dir: 'auto' }, more))))),
    where, caseDetails(c, units), policyBox(c), h('h3', {}, 'Run this case again'), commandBox(c.command, 'the command of the case'), caseFiles(c));
  showTimeline(c, where).then(() => { if (selected() === c) put(units, savingsTable(c), unitTable(c)); });
}

function tiles(c) {
  const list = [];
  if (known(c.step_ns)) {
    list.push(['step time', duration(c.step_ns), known(c.step_ci_low_ns) && duration(c.step_ci_low_ns) + ' \u2013 ' + duration(c.step_ci_high_ns) + ' (' + percent(c.ci_coverage) + ', n ' + c.repetitions + ')']);
    list.push(['throughput', rate(c.tokens_per_s), 'MAD ' + duration(c.step_mad_ns) + (c.stopped_by ? ', ended by ' + c.stopped_by : '')]);
  }
  if (known(c.peak_bytes)) list.push(['peak memory', bytes(c.peak_bytes), [c.budget > 0 && percent(c.peak_bytes / c.budget) + ' of ' + bytes(c.budget), c.peak_cause].filter(Boolean).join('; ')]);
  if (c.partition) list.push(['exposed', percent(exposedOf(c) / c.traced_step_ns), duration(exposedOf(c)) + ' of ' + duration(c.traced_step_ns) + ' traced']);
  if (known(c.overlap_pct)) list.push(['overlap', percent(c.overlap_pct / 100), 'of communication runs under compute']);
  if (known(c.units)) list.push(['units', integer(c.units), 'largest ' + bytes(c.largest_unit_bytes)]);
  if (known(c.collectives)) list.push(['collectives', integer(c.collectives), bytes(c.communicated_bytes) + ' sent per step and rank']);
  if (known(c.observer_ratio)) list.push(['observer ratio', c.observer_ratio.toFixed(3), c.observer_ratio > 1.05 ? 'tracing slowed it: read shares, not times' : 'traced / untraced step']);
  return list;
}

function caseDetails(c, units) {
  return h('div', { class: 'columns' }, h('div', {}, partitionTable(c), sampleChart(c)), h('div', {}, topTable(c), rankTable(c), warningsOf(c)),
    h('div', { class: 'wide' }, units));
}
function partitionTable(c) {
  if (!c.partition) return null;
  const whole = c.traced_step_ns || 1, most = Math.max(...c.partition, 1);
  return h('table', { class: 'slim' }, h('caption', {}, 'The traced step (rank ' + c.partition_rank + ', step ' + c.partition_step + ')'),
    h('thead', { class: 'unseen' }, h('tr', {}, ['class', 'time', 'share', ''].map((t) => h('th', { scope: 'col' }, t)))),
    h('tbody', {}, classes.map((k) => h('tr', { class: c.partition[k.i] ? null : 'zero' }, h('th', { scope: 'row', title: k.meaning }, h('i', { class: 'swatch', style: 'background:' + k.colour }), k.label),
      h('td', { class: 'number', title: integer(c.partition[k.i]) + ' ns' }, duration(c.partition[k.i])), h('td', { class: 'number' }, percent(c.partition[k.i] / whole)),
      h('td', { class: 'meter' }, h('i', { style: 'width:' + (100 * c.partition[k.i] / most).toFixed(1) + '%;background:' + k.colour }))))),
    h('tfoot', {}, h('tr', {}, h('th', { scope: 'row' }, 'sum'), h('td', { class: 'number', title: integer(whole) + ' ns' }, duration(whole)), h('td', { class: 'number' }, percent(1)), h('td', {}))));
}
function topTable(c) {
  if (!c.top.length) return null;
  return h('table', { class: 'slim parts' }, h('caption', {}, 'Largest parts that are not compute'), h('tbody', {}, c.top.map(([cls, unit, pass, , ns]) => h('tr', {},
    h('th', { scope: 'row' }, h('i', { class: 'swatch', style: 'background:' + classes[cls].colour }), classes[cls].label),
    h('td', { dir: 'auto', class: 'name' }, [unitName(c, unit), cls < 2 || cls > 3 ? passes[pass] : ''].filter(Boolean).join(', ')), h('td', { class: 'number' }, duration(ns))))));
}
function rankTable(c) {
  if (!c.ranks.length) return null;
  return h('details', { open: c.ranks.length <= 4 }, h('summary', {}, plural(c.ranks.length, 'rank', 'ranks')), h('div', { class: 'scroll' }, h('table', { class: 'slim' },
    h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'rank'), h('th', { scope: 'col', class: 'number' }, 'traced step, median'), h('th', { scope: 'col', class: 'number' }, 'peak'), h('th', { scope: 'col' }, 'at'))),
    h('tbody', {}, c.ranks.map(([rank, peak, cause, step]) => h('tr', {}, h('th', { scope: 'row' }, rank), h('td', { class: 'number' }, duration(step)), h('td', { class: 'number' }, bytes(peak)), h('td', { dir: 'auto', class: 'name' }, cause ?? c.peak_cause)))))));
}
function warningsOf(c) {
  const own = Object.entries(sweep().environments[c.environment] || {});
  return [c.warnings.length > 0 && h('ul', { class: 'warnings' }, c.warnings.map((w) => h('li', { dir: 'auto' }, w))),
    own.length > 0 && h('details', {}, h('summary', {}, 'Environment of this case where it differs'), pairs(own))];
}

// By how much the step would be shorter if nothing waited for one unit's collectives of a pass.
function savingsTable(c) {
  const flat = timeline.shownCase === c && timeline.data ? timeline.data.savings : [], rows = [];
  for (let i = 0; i < flat.length; i += 5) rows.push(flat.slice(i, i + 5));
  if (!rows.length) return null;
  return h('details', {}, h('summary', {}, 'What hiding one unit\u2019s collectives would save'), h('div', { class: 'scroll' }, h('table', { class: 'slim' },
    h('thead', {}, h('tr', {}, ['unit', 'collective', 'exposed', 'step shorter by', ''].map((t, k) => h('th', { scope: 'col', class: k > 1 && 'number' }, t)))),
    h('tbody', {}, rows.map(([unit, pass, kind, exposed, saved]) => h('tr', {}, h('th', { scope: 'row', dir: 'auto', class: 'name' }, unitName(c, unit) || 'no unit'), h('td', {}, [kinds[kind], passes[pass]].filter(Boolean).join(', ')),
      h('td', { class: 'number' }, duration(exposed)), h('td', { class: 'number' }, duration(saved)), h('td', { class: 'number' }, percent(saved / c.traced_step_ns))))))));
}

// Plan and, where the page carries them, what each unit's collectives and compute did.
function unitTable(c) {
  const plan = sweep().unit_tables[c.unit_table] || [];
  if (!plan.length) return null;
  const flat = timeline.shownCase === c && timeline.data ? timeline.data.unitMetrics : [];
  const done = plan.map(() => ({ exposed: 0, hidden: 0, compute: 0, collectives: 0, any: false }));
  for (let i = 0; i < flat.length; i += 13) {
    const d = done[flat[i]];
    if (!d) continue;
    d.any = true;
    d.collectives += flat[i + 2] + flat[i + 3] + flat[i + 4];
    d.exposed += flat[i + 9]; d.hidden += flat[i + 10]; d.compute += flat[i + 11];
  }
  const traced = done.some((d) => d.any);
  const columns = ['parameters', 'unsharded', 'shard', 'strategy', ...(traced ? ['collectives', 'exposed', 'hidden', 'compute'] : [])];
  return h('details', { open: plan.length <= 16 }, h('summary', {}, plural(plan.length, 'unit', 'units')), h('div', { class: 'scroll tall' }, h('table', { class: 'slim' },
    h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'unit'), columns.map((t) => h('th', { scope: 'col', class: t === 'strategy' ? null : 'number' }, t)))),
    h('tbody', {}, plan.map(([name, parameters, unsharded, shard, , strategy], u) => h('tr', {}, h('th', { scope: 'row', dir: 'auto', class: 'name' }, name || '(root)'),
      h('td', { class: 'number' }, integer(parameters)), h('td', { class: 'number' }, bytes(unsharded)), h('td', { class: 'number' }, bytes(shard)), h('td', {}, strategy),
      traced && [h('td', { class: 'number' }, integer(done[u].collectives)), ['exposed', 'hidden', 'compute'].map((k) => h('td', { class: 'number' }, duration(done[u][k])))]))))));
}

// The wrap policy as Python, unpacked when it is asked for.
async function policiesOf(sw) {
  if (!sw.unpacked) sw.unpacked = await unpack(sw.policies);
  return sw.unpacked;
}
function policyBox(c) {
  const sw = sweep();
  if (!known(c.policy) || typeof DecompressionStream === 'undefined') return null;
  const where = h('div', { 'aria-live': 'polite' });
  const show = async (kind) => {
    const texts = (await policiesOf(sw))[c.policy];
    put(where, h('div', { class: 'controls' }, choice('PyTorch', [[0, 'FSDP2'], [1, 'FSDP1']], kind, show)), commandBox(texts[kind], 'the policy'));
  };
  return h('details', { class: 'policy', ontoggle: (e) => { if (e.target.open && !where.firstChild) show(0); } }, h('summary', {}, 'Wrap policy to paste into PyTorch'), where);
}

// What the sweep kept of the case beside its database.
function caseFiles(c) {
  if (c.status === 'skipped') return null;
  const base = './' + (sweep().folder ? sweep().folder.split('/').map(encodeURIComponent).join('/') + '/' : ''), id = encodeURIComponent(c.id);
  return h('p', { class: 'muted files' }, 'Beside the results: ', h('a', { class: 'link', href: base + 'logs/' + id + '/' }, 'what each rank said'),
    ran(c) && [', ', h('a', { class: 'link', href: base + 'traces/' + id + '.json.gz' }, 'the trace for Perfetto')], '.');
}
