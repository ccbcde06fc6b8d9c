// Words and tables: head, answers, overview of workloads, what grew between neighbours, boundaries, environment, dictionary.
function caseLink(text, i) {
  return h('a', { href: '#case', class: 'link', dir: 'auto', onclick: (e) => { e.preventDefault(); choose(i, true); } }, text);
}
const sentence = (pieces) => pieces.map((p) => (typeof p === 'string' ? p : p.length > 1 ? caseLink(p[0], p[1]) : h('b', {}, p[0])));
const heading = (id, text, ...more) => h('div', { class: 'section-head' }, h('h2', { id: id + '-h' }, text), ...more);

function statusBadge(status, count) {
  return h('span', { class: 'badge status-' + status, title: statuses[status][1] }, statuses[status][0], known(count) && h('b', {}, ' ' + count));
}

function renderHead() {
  const now = sweep();
  byId('title').textContent = now ? now.name || 'A sweep without a name' : report.title;
  document.title = now ? (now.name || 'sweep').slice(0, 80) + ' \u00b7 ' + report.title : report.title;
  const counts = {};
  for (const c of now ? now.cases : []) counts[c.status] = (counts[c.status] || 0) + 1;
  byId('subtitle').textContent = now ? plural(now.cases.length, 'case', 'cases') + ', ' + moment(now.created_at) +
    (now.environment.cpu ? ', ' + now.environment.cpu.slice(0, 80) : '') + (now.environment.cores ? ', ' + plural(Number(now.environment.cores), 'core', 'cores') : '') : 'No sweep was given.';
  put(byId('marks'), ...Object.keys(statuses).filter((k) => counts[k]).map((k) => statusBadge(k, counts[k])), ...trustMarks());

  const views = report.sweeps.flatMap((sw, i) => sw.workloads.map((w, j) => [i + ':' + j,
    [report.sweeps.length > 1 ? sw.name || 'sweep ' + (i + 1) : '', w.label].filter(Boolean).join(': ') || 'all cases']));
  put(byId('view-picker'), ...(views.length > 1 ? [picker('View', views, state.sweep + ':' + state.workload, (v) => {
    [state.sweep, state.workload] = v.split(':').map(Number);
    view();
  })] : []));
}

function renderAnswers() {
  const w = workload();
  if (!w) {
    put(byId('answers'), h('p', { class: 'notice' }, 'There is no case to show. Run a sweep, then make the report again.'));
    return;
  }
  const several = report.sweeps.some((sw) => sw.workloads.length > 1);
  put(byId('answers'), several && w.label ? h('p', { class: 'muted', dir: 'auto' }, 'Of ' + w.label + '; the others are in the table below.') : null,
    h('div', { class: 'answers' }, w.answers.map((a) => h('article', { class: 'answer' }, h('h2', {}, a.question), h('p', {}, sentence(a.sentence)),
      a.notes.map((n) => h('p', { class: 'muted' }, sentence(n)))))));
}

function renderOverview() {
  const rows = report.sweeps.flatMap((sw, i) => sw.workloads.map((w, j) => [sw, w, i, j]));
  byId('overview').hidden = rows.length < 2;
  if (rows.length < 2) return;
  const cell = (sw, w, i) => (!known(i) ? none : w.per_token ? rate(sw.cases[i].tokens_per_s) : duration(sw.cases[i].step_ns));
  put(byId('overview'), h('h2', {}, 'All workloads'), h('div', { class: 'scroll' }, h('table', {},
    h('thead', {}, h('tr', {}, ['workload', 'best wrapping', 'best', 'default', 'slowest', 'peak of the best', 'cases'].map((t, k) => h('th', { scope: 'col', class: k > 1 && 'number' }, t)))),
    h('tbody', {}, rows.map(([sw, w, i, j]) => h('tr', { class: i === state.sweep && j === state.workload ? 'current' : null },
      h('td', {}, h('button', { type: 'button', class: 'link', dir: 'auto', onclick: () => { state.sweep = i; state.workload = j; view(); scrollTo(0, 0); } },
        [report.sweeps.length > 1 ? sw.name : '', w.label].filter(Boolean).join(': ') || 'all cases')),
      h('td', { dir: 'auto' }, bestText(sw, w)),
      h('td', { class: 'number' }, cell(sw, w, w.best)), h('td', { class: 'number' }, cell(sw, w, w.standard)), h('td', { class: 'number' }, cell(sw, w, w.worst)),
      h('td', { class: 'number' }, known(w.best) ? bytes(sw.cases[w.best].peak_bytes) : none), h('td', { class: 'number' }, w.cases.length)))))));
}
function bestText(sw, w) {
  if (!known(w.best)) return none;
  const c = sw.cases[w.best];
  return sw.axes.map((a, k) => (a.workload || a.values.length < 2 ? '' : axisLabel(a, valueText(a.values[c.at[k]])))).filter(Boolean).join(', ') || c.id;
}

// What else the records show: cliffs with their causes, near-limit regions, samples that drift, observers that disturb.
const remarkNames = { cliff: 'cliff', near_oom: 'near OOM', violation: 'order of fits', samples: 'samples', observer: 'observer' };
function renderRemarks() {
  const w = workload(), list = w ? w.remarks : [];
  byId('remarks').hidden = !list.length;
  if (!list.length) return;
  const row = ([kind, confidence, text, cases]) => h('li', {}, h('span', { class: 'badge ' + ({ cliff: 'status-near_oom', near_oom: 'status-near_oom', violation: 'status-oom' }[kind] || '') }, remarkNames[kind] || kind),
    h('p', {}, h('span', { dir: 'auto' }, text), ' ', h('span', { class: 'muted' }, '(' + confidence + ' confidence) '),
      cases.slice(0, 2).map((i, k) => [k ? ', ' : '', caseLink(kind === 'cliff' ? ['faster case', 'slower case'][k] : 'case', i)])));
  put(byId('remarks'), h('details', {}, h('summary', {}, 'What else the numbers show (' + integer(list.length + w.remarks_left_out) + ')'), h('ul', { class: 'remarks' }, list.map(row)),
    w.remarks_left_out > 0 && h('p', { class: 'muted' }, integer(w.remarks_left_out) + ' lesser ones are left out.')));
}

// What grew between neighbours along the x axis, for the cases that the charts show.
function neighbourTable() {
  const x = xAxis();
  if (!x) return null;
  const here = new Set(shown());
  const rows = workload().steps.filter((st) => st[0] === x.i && here.has(st[1]) && here.has(st[2]));
  if (!rows.length) return null;
  const cliffs = rows.filter((st) => st[5]).length;
  const many = linesShown().length > 1;
  return h('details', { open: rows.length <= 8 }, h('summary', {}, 'What grew from each ' + shortAxis(x.name) + ' to the next' + (cliffs ? ' (' + plural(cliffs, 'cliff', 'cliffs') + ')' : '')),
    h('p', { class: 'muted' }, 'Of the slower of two neighbours: the class that grew most, with its share of all that grew. A cliff is a change of 10 % or more with disjoint intervals that stands out from the other changes on its line.'),
    h('div', { class: 'scroll' }, h('table', {}, h('thead', {}, h('tr', {}, many && h('th', { scope: 'col' }, 'line'), ['from', 'to'].map((t) => h('th', { scope: 'col' }, t)),
      h('th', { scope: 'col', class: 'number' }, 'change'), h('th', { scope: 'col' }, 'grew most'), h('th', { scope: 'col', class: 'number' }, 'share'), h('th', { scope: 'col' }, 'verdict'))),
    h('tbody', {}, rows.map(([, from, to, change, disjoint, cliff, cause, share]) => h('tr', {}, many && h('td', { dir: 'auto' }, lineLabel(caseAt(from))),
      h('td', {}, caseLink(valueOf(caseAt(from), x.i), from)), h('td', {}, caseLink(valueOf(caseAt(to), x.i), to)),
      h('td', { class: 'number' }, (change > 0 ? '+' : change < 0 ? '\u2212' : '') + percent(Math.abs(change))),
      h('td', {}, cause < 0 ? 'not traced' : [h('i', { class: 'swatch', style: 'background:' + classes[cause].colour }), classes[cause].label]),
      h('td', { class: 'number' }, cause < 0 ? none : percent(share)),
      h('td', {}, cliff ? h('span', { class: 'badge status-near_oom' }, 'cliff') : disjoint ? (change > 0 ? 'slower' : 'faster') : 'intervals meet', cause >= 0 && share < 0.5 && ', mixed')))))));
}

function boundaryTable() {
  const here = new Set(shown());
  const rows = workload().boundaries.filter((b) => (known(b[1]) && here.has(b[1])) || (known(b[2]) && here.has(b[2])));
  if (!rows.length) return null;
  const end = (i) => (known(i) ? [caseLink(labelOf(caseAt(i)), i), ' ', h('span', { class: 'muted' }, bytes(caseAt(i).peak_bytes))] : 'nothing');
  return h('div', { class: 'scroll' }, h('table', {}, h('caption', {}, 'Where it stops fitting'),
    h('thead', {}, h('tr', {}, ['along', 'last that fits', 'first out of memory', 'at', ''].map((t) => h('th', { scope: 'col' }, t)))),
    h('tbody', {}, rows.map(([axis, fit, oom, violated]) => h('tr', {}, h('td', {}, shortAxis(sweep().axes[axis].name)), h('td', {}, end(fit)), h('td', {}, end(oom)),
      h('td', { dir: 'auto' }, known(oom) ? caseAt(oom).peak_cause || caseAt(oom).reason || none : none), h('td', {}, violated && 'something fits beyond it'))))));
}

const pairs = (entries) => h('dl', { class: 'pairs' }, entries.map(([k, v]) => h('div', {}, h('dt', {}, k), h('dd', { dir: 'auto' }, v === '' ? none : v))));
function commandBox(command, what) {
  return h('div', { class: 'command' }, h('pre', { tabindex: 0 }, command), h('button', { type: 'button', onclick: (e) => {
    const done = () => { e.target.textContent = 'Copied'; setTimeout(() => { e.target.textContent = 'Copy'; }, 1500); };
    if (navigator.clipboard) navigator.clipboard.writeText(command).then(done, () => getSelection().selectAllChildren(e.target.previousSibling));
    else getSelection().selectAllChildren(e.target.previousSibling);
  }, 'aria-label': 'Copy ' + what }, 'Copy'));
}

function renderEnvironment() {
  const now = sweep();
  const part = byId('environment');
  if (!now) return put(part);
  // Warnings that differ in their numbers only stand together.
  const warned = new Map();
  for (const i of casesInView()) {
    for (const w of caseAt(i).warnings) {
      const kind = w.replace(/\d[\d.,]*/g, '#');
      if (!warned.has(kind)) warned.set(kind, [w, []]);
      warned.get(kind)[1].push(i);
    }
  }
  put(part, heading('environment', 'Environment and warnings'),
    h('ul', { class: 'warnings' }, trustList(), [...warned.values()].map(([text, list]) => h('li', {}, h('span', { dir: 'auto' }, text.length > 400 ? text.slice(0, 400) + '\u2026' : text), ' ',
      h('span', { class: 'muted' }, list.length > 1 ? '(and ' + plural(list.length - 1, 'case', 'cases') + ' alike) ' : ''), caseLink(labelOf(caseAt(list[0])), list[0])))),
    !warned.size && !trustNotes().length && h('p', { class: 'muted' }, 'No case gave a warning.'),
    now.command && [h('h3', {}, 'Run this sweep again'), commandBox(now.command, 'the command of the sweep')],
    h('div', { class: 'columns' },
      h('div', {}, h('h3', {}, 'Machine and versions'), pairs(Object.entries(now.environment))),
      h('div', {}, h('h3', {}, 'Settings that all cases share'), pairs(now.settings))),
    now.spec && h('details', {}, h('summary', {}, 'Sweep spec' + (now.hash ? ' (' + now.hash.slice(0, 16) + ')' : '')), h('pre', { class: 'spec', tabindex: 0 }, now.spec)));
}

const dictionary = [
  ['step', 'Median over untraced repetitions of (time of one repetition / its steps), of the slowest rank. The interval is that of the median, from order statistics.'],
  ['MAD', 'Median absolute deviation of the samples from their median.'],
  ['tokens/s', 'Tokens of all ranks in one step, divided by the step time.'],
  ['peak', 'Largest number of live bytes of a rank at one instant; its cause names unit, pass and the category with the largest share then.'],
  ['traced step', 'The step of median length on the slowest rank of the traced repetition. The eleven classes describe it, exclude each other and sum to its length exactly.'],
  ...classes.map((k) => [k.label, k.meaning[0].toUpperCase() + k.meaning.slice(1) + '.']),
  ['overlap', 'Time in which compute and a collective run together, divided by the time in which a collective runs. Absent when there was no communication.'],
  ['collectives, sent', 'Per step and rank; bytes by the ring formulas, padding included.'],
  ['observer ratio', 'Traced step / untraced step. Above 1.05 the parts are to be read as shares, not as times.'],
  ['emulated', 'Latency and bandwidth of the network were imposed on real transfers.'],
  ['predicted', 'Times come from a cost model and a virtual clock; nothing was run for them.'],
  ['default', 'The case with wrap block and backward prefetch pre, other settings at their defaults where the sweep offers them.'],
  ['recommended', 'The fastest case that leaves 5 % of the budget free; of cases as fast within 2 % whose intervals meet, the smallest.'],
  ['front', 'Cases that no other case beats in both step time and peak memory.'],
  ['clock uncertainty', 'How closely the ends of the collectives that all ranks share agree, at worst: on one machine an upper bound, since all ranks read the same clock.'],
  ['expected error', 'Of a prediction: the median error of the same model against measurements, with where it was measured.'],
  ['cliff', 'Two neighbours that differ by 10 % or more, with disjoint intervals, by at least three times the median of the other changes on the line.'],
];
const csvColumns = [
  ['case, status, reason', 'Id of the case, what became of it, and why in one sentence.'], ['(one column for each axis)', 'The value of that setting.'],
  ['units, largest_unit_bytes', 'Number of units; unsharded bytes of the largest, padding included.'],
  ['step_ns, step_mad_ns, step_ci_low_ns, step_ci_high_ns, repetitions', 'Median step, its deviation and interval in nanoseconds; number of samples.'],
  ['tokens_per_s', 'Tokens of all ranks per second.'], ['peak_bytes, peak_cause', 'Peak of the fullest rank; unit, pass and largest category there.'],
  ['traced_step_ns', 'Length of the step that the next eleven columns describe.'],
  ['compute_ns, overlapped_ns, exposed_all_gather_forward_ns, exposed_all_gather_backward_ns, exposed_reduce_scatter_ns, exposed_other_ns, copy_ns, host_ns, memory_wait_ns, optimizer_ns, idle_ns', 'The partition; its sum is traced_step_ns exactly.'],
  ['overlap_pct', 'Percent; empty without communication.'], ['collectives, communicated_bytes', 'Per step and rank.'],
  ['observer_ratio', 'Traced / untraced step.'], ['emulated, predicted', 'true or false.'],
];
function renderDictionary() {
  put(byId('dictionary'), heading('dictionary', 'Dictionary'),
    h('dl', { class: 'dictionary' }, dictionary.map(([k, v]) => h('div', {}, h('dt', {}, k), h('dd', {}, v)))),
    h('details', {}, h('summary', {}, 'Columns of results.csv'), h('p', { class: 'muted' }, 'What a case does not have is an empty field; integers are exact.'),
      h('dl', { class: 'dictionary' }, csvColumns.map(([k, v]) => h('div', {}, h('dt', {}, k), h('dd', {}, v))))),
    h('h3', {}, 'Ends of a case'),
    h('dl', { class: 'dictionary' }, Object.entries(statuses).map(([k, v]) => h('div', {}, h('dt', {}, statusBadge(k)), h('dd', {}, v[1] + '.')))));
}
