// The samples of a case in the order in which they were taken, with the median and its interval: a drift or a short warm-up is seen at once.
function sampleChart(c) {
  if (!c.samples || c.samples.length < 3) return null;
  const width = 560, height = 96, left = 60, right = width - 8, low = Math.min(...c.samples), high = Math.max(...c.samples), room = (high - low) || 1;
  const xOf = (k) => left + (k + 0.5) / c.samples.length * (right - left), yOf = (v) => 12 + (high - v) / room * (height - 36);
  const svg = s('svg', { width, height, viewBox: `0 0 ${width} ${height}`, class: 'samples', role: 'img', 'aria-label': plural(c.samples.length, 'sample', 'samples') + ' from ' + duration(low) + ' to ' + duration(high) });
  const clamp = (v) => Math.max(low, Math.min(high, v));
  if (known(c.step_ci_low_ns)) svg.append(s('rect', { x: left, width: right - left, y: yOf(clamp(c.step_ci_high_ns)), height: Math.max(1, yOf(clamp(c.step_ci_low_ns)) - yOf(clamp(c.step_ci_high_ns))), class: 'band' }));
  svg.append(s('path', { d: `M${left},${yOf(c.step_ns)}H${right}`, class: 'limit even' }), s('text', { x: left - 6, y: yOf(high) + 4, class: 'tick end small' }, duration(high)), s('text', { x: left - 6, y: yOf(low) + 4, class: 'tick end small' }, duration(low)));
  const group = s('g', { class: 'line-mark', style: 'color:var(--l0)' });
  c.samples.forEach((v, k) => group.append(s('circle', { cx: xOf(k), cy: yOf(v), r: c.samples.length > 60 ? 1.6 : 3 }, s('title', {}, 'sample ' + (k + 1) + ': ' + duration(v)))));
  svg.append(group, s('text', { x: (left + right) / 2, y: height - 4, class: 'axis-name middle small' }, 'samples in the order taken'));
  return h('figure', { class: 'chart sample-chart' }, h('figcaption', { class: 'section-head' }, h('b', {}, 'Samples of the step time'), exportButtons(() => svg, 'samples-' + c.id.slice(0, 60))), svg);
}
