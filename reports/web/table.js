// All cases: sorted by a click on a head, narrowed by status and by words.
const table = { sort: null, down: false, words: '', off: new Set(), wide: false };

function tableColumns() {
  const number = (name, get, text) => ({ name, get, text, number: true });
  const axes = sweep().axes.map((axis, i) => ({ ...axis, i })).filter((a) => a.values.length > 1);
  const columns = [
    { name: 'status', get: (c) => Object.keys(statuses).indexOf(c.status), cell: (c) => [statusBadge(c.status), marksOf(c).map((m) => h('abbr', { class: 'mark', title: m }, m[0].toUpperCase()))] },
    ...axes.map((a) => ({ name: shortAxis(a.name), get: (c) => c.at[a.i], cell: (c) => valueOf(c, a.i), className: 'name' })),
    number('units', (c) => c.units, integer),
    number('step', (c) => c.step_ns, duration),
    { name: 'interval', get: (c) => c.step_ci_low_ns, number: true, cell: (c) => (known(c.step_ci_low_ns) ? duration(c.step_ci_low_ns) + ' \u2013 ' + duration(c.step_ci_high_ns) : none) },
    number('tokens/s', (c) => c.tokens_per_s, integer),
    number('exposed', (c) => exposedOf(c), duration),
    number('overlap', (c) => c.overlap_pct, (v) => (known(v) ? percent(v / 100) : none)),
    number('peak', (c) => c.peak_bytes, bytes),
    { name: 'peak cause or reason', get: (c) => whyText(c), cell: (c) => whyText(c), className: 'why' },
  ];
  if (!table.wide) return columns;
  return [...columns, number('largest unit', (c) => c.largest_unit_bytes, bytes), number('MAD', (c) => c.step_mad_ns, duration), number('repetitions', (c) => c.repetitions, integer),
    number('traced step', (c) => c.traced_step_ns, duration), ...classes.map((k) => number(k.label, (c) => (c.partition ? c.partition[k.i] : null), duration)),
    number('collectives', (c) => c.collectives, integer), number('sent', (c) => c.communicated_bytes, bytes), number('observer ratio', (c) => c.observer_ratio, (v) => (known(v) ? v.toFixed(3) : none)),
    { name: 'case', get: (c) => c.id, cell: (c) => c.id, className: 'name' }];
}
const whyText = (c) => (c.status === 'ok' ? c.peak_cause : c.reason || c.peak_cause);

function tableRows(columns) {
  const words = table.words.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = casesInView().filter((i) => {
    const c = caseAt(i);
    if (table.off.has(c.status)) return false;
    if (!words.length) return true;
    const text = (c.id + ' ' + statuses[c.status][0] + ' ' + sweep().axes.map((a, k) => a.values[c.at[k]] || '').join(' ') + ' ' + c.peak_cause + ' ' + (c.reason || '')).toLowerCase();
    return words.every((w) => text.includes(w));
  });
  const column = columns.find((k) => k.name === table.sort);
  if (!column) return rows;
  const sign = table.down ? -1 : 1;
  return rows.map((i) => [column.get(caseAt(i)), i]).sort(([a, i], [b, j]) => {
    if (!known(a) || !known(b)) return known(a) ? -1 : known(b) ? 1 : i - j;   // what is absent comes last, both ways
    return sign * (typeof a === 'string' ? a.localeCompare(b) : a - b) || i - j;
  }).map(([, i]) => i);
}

function renderTable() {
  const part = byId('cases');
  if (!workload()) return put(part);
  const here = new Set(casesInView().map((i) => caseAt(i).status));
  const body = h('div', { class: 'scroll tall', id: 'case-table', tabindex: 0, role: 'region', 'aria-label': 'Table of cases' });
  const count = h('span', { class: 'muted', role: 'status' });
  const refresh = () => fillTable(body, count);
  put(part, heading('cases', 'All cases'),
    h('div', { class: 'controls' },
      h('label', { class: 'picker' }, h('span', {}, 'Filter'), h('input', { type: 'search', value: table.words, placeholder: 'words, for instance: block pre', oninput: (e) => { table.words = e.target.value; refresh(); } })),
      h('span', { class: 'choice', role: 'group', 'aria-label': 'Statuses to show' }, here.size > 1 && Object.keys(statuses).filter((k) => here.has(k)).map((k) => h('button', { type: 'button', 'aria-pressed': String(!table.off.has(k)), onclick: (e) => {
        if (table.off.has(k)) table.off.delete(k); else table.off.add(k);
        e.target.setAttribute('aria-pressed', String(!table.off.has(k)));
        refresh();
      } }, statuses[k][0]))),
      h('button', { type: 'button', class: 'quiet', 'aria-pressed': String(table.wide), onclick: (e) => { table.wide = !table.wide; e.target.setAttribute('aria-pressed', String(table.wide)); refresh(); } }, 'all columns'), count),
    body);
  refresh();
}

function fillTable(where, count) {
  const columns = tableColumns(), rows = tableRows(columns);
  count.textContent = rows.length + ' of ' + plural(casesInView().length, 'case', 'cases');
  const sortBy = (name) => {
    table.down = table.sort === name ? !table.down : false;
    table.sort = name;
    fillTable(where, count);
    [...where.querySelectorAll('th button')].find((b) => b.textContent === name).focus();
  };
  put(where, h('table', { class: 'cases' },
    h('thead', {}, h('tr', {}, columns.map((k) => h('th', { scope: 'col', class: k.number && 'number', 'aria-sort': table.sort === k.name ? (table.down ? 'descending' : 'ascending') : null },
      h('button', { type: 'button', onclick: () => sortBy(k.name) }, k.name))))),
    h('tbody', {}, rows.map((i) => tableRow(columns, i)))));
}
function tableRow(columns, i) {
  const c = caseAt(i);
  const pick = () => choose(i, false);
  return h('tr', { 'data-case': i, tabindex: 0, class: i === state.case ? 'current' : null, 'aria-selected': String(i === state.case), onclick: pick,
    onkeydown: (e) => { if (e.key === 'Enter' && e.target === e.currentTarget) pick(); } },
  columns.map((k) => {
    const content = k.cell ? k.cell(c) : k.text(k.get(c));
    return h('td', { class: [k.number && 'number', k.className].filter(Boolean).join(' ') || null, dir: k.className ? 'auto' : null, title: k.className === 'why' ? String(content).slice(0, 500) : null }, content);
  }));
}
function markRow() {
  for (const row of byId('cases').querySelectorAll('tr[data-case]')) {
    const current = Number(row.dataset.case) === state.case;
    row.classList.toggle('current', current);
    row.setAttribute('aria-selected', String(current));
  }
}
