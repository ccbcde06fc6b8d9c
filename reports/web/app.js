// What a change of the state redraws, and the start.
function renderFilters() {
  const part = byId('filters');
  part.hidden = !workload() || freeAxes().length < 2;
  if (part.hidden) return put(part);
  const x = xAxis();
  put(part, h('b', {}, 'Charts'),
    picker('along', freeAxes().map((a) => [a.name, shortAxis(a.name)]), x.name, (v) => { state.x = v; state.only = defaultOnly(); view(false); }),
    ...otherAxes().map((axis) => {
      const here = [...new Set(casesInView().map((i) => caseAt(i).at[axis.i]))].sort((a, b) => a - b);
      return picker(shortAxis(axis.name), [['*', 'all'], ...here.map((v) => [v, valueText(axis.values[v])])], onlyOf(axis) ?? '*', (v) => {
        if (v === '*') delete state.only[axis.name]; else state.only[axis.name] = Number(v);
        view(false);
      });
    }),
    h('span', { class: 'muted' }, shown().length + ' of ' + plural(casesInView().length, 'case', 'cases')));
}

const renderCharts = () => { renderStep(); renderHeat(); renderPartition(); renderMemory(); renderFrontier(); renderPredicted(); };

// Another sweep, workload or selection of cases. `fresh`: the case and the filters start again too.
function view(fresh = true) {
  hideTip();
  if (fresh && workload()) {
    Object.assign(state, { x: null, y: usualMeasure(), hx: null, hy: null, hm: usualMeasure(), along: null, unit: -1, zoom: null });
    state.only = defaultOnly();
    if (!casesInView().includes(state.case)) state.case = startCase();
  }
  writeState();
  renderAll();
}
function renderAll() {
  renderHead();
  renderAnswers();
  renderOverview();
  renderRemarks();
  renderFilters();
  renderCharts();
  renderCase();
  renderTable();
  renderEnvironment();
  renderDictionary();
}
function change(patch) {
  Object.assign(state, patch);
  writeState();
  const focused = document.activeElement && document.activeElement.closest('#step, #heat, #partition, #memory, #frontier');
  const label = document.activeElement ? document.activeElement.textContent : '', at = focused ? [...focused.querySelectorAll('select')].indexOf(document.activeElement) : -1;
  renderCharts();
  if (at >= 0) byId(focused.id).querySelectorAll('select')[at]?.focus();
  else if (focused) [...byId(focused.id).querySelectorAll('button')].find((b) => b.textContent === label)?.focus();
}
// Selects a case; `go`: the page moves to it.
function choose(i, go) {
  if (i !== state.case) {
    Object.assign(state, { case: i, unit: -1, zoom: null });
    writeState();
    for (const [id, draw] of [['step', renderStep], ['heat', renderHeat], ['partition', renderPartition], ['memory', renderMemory], ['frontier', renderFrontier]]) keepFocus(id, draw);
    renderCase();
    markRow();
    say(labelOf(selected()) + ' selected');
  }
  if (go) byId('case').scrollIntoView({ behavior: matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth' });
}
// Redrawing replaces the marks: the one at the same place gets the focus back.
function keepFocus(id, draw) {
  const marks = () => [...byId(id).querySelectorAll('[tabindex="0"], summary, button')];
  const at = marks().indexOf(document.activeElement);
  const open = [...byId(id).querySelectorAll('details')].map((d) => d.open);
  draw();
  [...byId(id).querySelectorAll('details')].forEach((d, k) => { d.open = Boolean(open[k]); });
  if (at >= 0) marks()[at]?.focus({ preventScroll: true });
}

function start() {
  readState();
  renderAll();
  put(byId('footer'), 'Made by shardscope from the results alone. Nothing in this page loads anything from anywhere.');
  byId('nav').addEventListener('click', (e) => {
    const id = e.target.dataset && e.target.dataset.go;
    if (!id) return;
    e.preventDefault();
    byId(id).scrollIntoView();
    byId(id).focus({ preventScroll: true });
  });
  addEventListener('hashchange', () => {
    if (location.hash === written) return;
    readState();
    renderAll();
  });
  let width = innerWidth;
  addEventListener('resize', later(() => {
    if (innerWidth === width) return;   // the bars of a phone's browser come and go while scrolling
    width = innerWidth;
    renderCharts();
    drawTimeline();
  }, 120));
  for (const query of ['(prefers-color-scheme: dark)', 'print']) matchMedia(query).addEventListener('change', drawTimeline);
  addEventListener('scroll', hideTip, { passive: true });
  addEventListener('keydown', (e) => { if (e.key === 'Escape') hideTip(); });
  addEventListener('beforeprint', () => document.querySelectorAll('#memory details, #step details, #environment details, #predicted details').forEach((d) => { d.open = true; }));
}
start();
