// How far the numbers can be trusted: what was emulated, predicted, throttled, and what changed on the machine between the cases.
const inputsOf = (test) => casesInView().filter((i) => test(caseAt(i)));
const sameKeys = ['host', 'cpu', 'cpu_threads', 'libtorch', 'libtorch_cpu', 'kernels', 'git_revision', 'compiler', 'kernel', 'gpu', 'gpu_count', 'gpu_driver', 'gpu_topology', 'nccl', 'cuda'];

// [low, high] over all cases of the clocks that the machine told, by their name.
function clockRanges() {
  const ranges = new Map();
  for (const i of casesInView()) {
    for (const [name, text] of Object.entries(sweep().environments[caseAt(i).environment] || {})) {
      if (!/mhz|clock/i.test(name)) continue;
      for (const v of (text.match(/\d+(\.\d+)?/g) || []).map(Number).filter((n) => n > 0)) {
        const range = ranges.get(name) || [v, v];
        ranges.set(name, [Math.min(range[0], v), Math.max(range[1], v)]);
      }
    }
  }
  return ranges;
}

// [short word for the head of the page, sentence, first case or null]
function trustNotes() {
  const now = sweep(), notes = [], all = casesInView().length;
  if (!now) return notes;
  const some = (list) => (list.length === all ? 'all cases' : plural(list.length, 'case', 'cases'));
  const say = (test, word, text) => { const list = inputsOf(test); if (list.length) notes.push([word, text(some(list)), list.length < all ? list[0] : null]); };
  say((c) => c.emulated, 'network emulated', (n) => 'In ' + n + ' the network was emulated: latency and bandwidth were imposed on real transfers, without congestion or topology.');
  say((c) => c.predicted, 'times predicted', (n) => 'In ' + n + ' times come from a cost model, not from a clock. ' + expectedErrors().join(' '));
  say((c) => !c.predicted && (c.warnings.some((w) => /throttl/i.test(w)) || Number(envOf(now, c, 'machine.throttled_us')) > 0 || Number(envOf(now, c, 'machine.thermal_throttles')) > 0), 'throttled',
    (n) => 'In ' + n + ' the machine was throttled while it measured: those times are longer than the program\u2019s own.');
  for (const [name, [low, high]] of clockRanges()) {
    if (high / low > 1.05) notes.push(['unlike clocks', shortAxis(name) + ' went from ' + integer(low) + ' to ' + integer(high) + ' between or within cases: differences below ' + percent(high / low - 1) + ' may be the clock\u2019s.', null]);
  }
  for (const name of sameKeys) {
    const values = new Set(casesInView().map((i) => envOf(now, caseAt(i), name)).filter((v) => v !== undefined));
    if (values.size > 1) notes.push(['unlike machines', shortAxis(name) + ' is not the same in all cases: ' + [...values].slice(0, 4).map((v) => v.slice(0, 60)).join('; ') + (values.size > 4 ? '; \u2026' : '') + '.', null]);
  }
  say((c) => c.observer_ratio > 1.05, 'tracing disturbed', (n) => 'In ' + n + ' tracing slowed the step by more than 5 %: read its parts as shares, not as times.');
  return notes;
}
const trustMarks = () => [...new Map(trustNotes().map(([word, text]) => [word, text]))].map(([word, text]) => h('span', { class: 'badge mark', title: text.slice(0, 500) }, word));
const trustList = () => trustNotes().map(([word, text, i]) => h('li', {}, h('b', {}, word[0].toUpperCase() + word.slice(1) + '. '), h('span', { dir: 'auto' }, text), ' ', known(i) && caseLink(labelOf(caseAt(i)), i)));
