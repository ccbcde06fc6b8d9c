// Building blocks: elements, numbers with their units, text that fits, downloads. Text enters the page as text only.
const byId = (id) => document.getElementById(id);
const svgNamespace = byId('svg-root').namespaceURI;

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat(3)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}
const put = (element, ...children) => { element.replaceChildren(); return fill(element, {}, children); };
const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
const s = (tag, props, ...children) => fill(document.createElementNS(svgNamespace, tag), props, children);

const threeDigits = (v) => {
  const size = Math.abs(v);
  return size >= 99.95 ? v.toFixed(0) : size >= 9.995 ? v.toFixed(1) : v.toFixed(2);
};
const none = '\u2013';
const known = (v) => v !== null && v !== undefined;
const integer = (v) => (known(v) ? Math.round(v).toLocaleString('en-US') : none);
function duration(ns) {
  if (!known(ns)) return none;
  const size = Math.abs(ns);
  if (size < 999.5) return Math.round(ns) + ' ns';
  if (size < 999.5e3) return threeDigits(ns / 1e3) + ' \u00b5s';
  if (size < 999.5e6) return threeDigits(ns / 1e6) + ' ms';
  return threeDigits(ns / 1e9) + ' s';
}
function bytes(n) {
  if (!known(n)) return none;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let v = n, u = 0;
  while (Math.abs(v) >= 1023.5 && u + 1 < units.length) { v /= 1024; u += 1; }
  return (u ? threeDigits(v) : String(n)) + ' ' + units[u];
}
const percent = (fraction) => {
  if (!known(fraction) || !isFinite(fraction)) return none;
  const v = 100 * fraction;
  return (Math.abs(v) < 9.95 ? v.toFixed(1) : v.toFixed(0)) + ' %';
};
const rate = (v) => (!known(v) ? none : (v < 99.95 ? threeDigits(v) : integer(v)) + ' tokens/s');
const moment = (seconds) => (seconds ? new Date(seconds * 1000).toISOString().replace('T', ' ').slice(0, 16) + ' UTC' : none);
const plural = (n, one, many) => integer(n) + ' ' + (n === 1 ? one : many);

// Ticks at 1, 2 or 5 times a power of the base; `base` 1024 gives round binary sizes.
function ticks(max, wanted, base = 10) {
  if (!(max > 0)) return [0];
  let unit = 1;
  if (base === 1024) while (unit * 1024 <= max) unit *= 1024;
  const rough = max / unit / wanted;
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((m) => m >= rough * 0.999) * unit;
  const out = [];
  for (let v = 0; v <= max * 1.0001; v += step) out.push(v);
  return out;
}

// All ticks of an axis in one unit, so that they read as one scale.
function scaleFormat(kind, max) {
  if (kind === 'percent') return { text: (v) => Math.round(v * 100) + ' %', unit: 'share' };
  if (kind === 'bytes') {
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    const u = Math.max(0, Math.min(4, Math.floor(Math.log2(max || 1) / 10)));
    return { text: (v) => trimmed(v / 1024 ** u), unit: units[u] };
  }
  if (kind === 'rate') return { text: (v) => v.toLocaleString('en-US'), unit: 'tokens/s' };
  const [size, unit] = max >= 1e9 ? [1e9, 's'] : max >= 1e6 ? [1e6, 'ms'] : max >= 1e3 ? [1e3, '\u00b5s'] : [1, 'ns'];
  return { text: (v) => trimmed(v / size), unit };
}
const trimmed = (v) => String(Number(v.toPrecision(4)));

const pen = document.createElement('canvas').getContext('2d');
const chartFont = (px = 12) => px + 'px ' + getComputedStyle(document.body).fontFamily;
function widthOf(text, px = 12) {
  pen.font = chartFont(px);
  return pen.measureText(text).width;
}
// The text, shortened in the middle to at most `width` pixels.
function fitted(text, width, px = 12) {
  if (text.length < 400 && widthOf(text, px) <= width) return text;
  const all = Array.from(text.slice(0, 400));
  let low = 0, high = all.length;
  const cut = (n) => all.slice(0, Math.ceil(n * 0.6)).join('') + '\u2026' + (n > 3 ? all.slice(all.length - Math.floor(n * 0.4)).join('') : '');
  while (low < high) {
    const n = Math.ceil((low + high) / 2);
    if (widthOf(cut(n), px) <= width) low = n; else high = n - 1;
  }
  return cut(low);
}

function later(action, ms) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(action, ms); };
}
const cssValue = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const say = (text) => { byId('said').textContent = text; };

// One tooltip for all charts: lines are texts or [label, value, colour].
function showTip(event, lines) {
  const tip = byId('tip');
  tip.replaceChildren(...lines.filter(Boolean).map((line, i) => Array.isArray(line)
    ? h('div', { class: 'tip-row' }, h('span', {}, line[2] && h('i', { style: 'background:' + line[2] }), line[0]), h('b', {}, line[1]))
    : h('div', { class: i ? 'tip-text' : 'tip-head', dir: 'auto' }, line.length > 300 ? line.slice(0, 300) + '\u2026' : line)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const anchor = event.clientX === undefined || (event.clientX === 0 && event.clientY === 0)
    ? (() => { const r = event.target.getBoundingClientRect(); return { x: r.x + r.width / 2, y: r.y + r.height / 2 }; })()
    : { x: event.clientX, y: event.clientY };
  const left = anchor.x + 14 + box.width > innerWidth - 8 ? anchor.x - box.width - 14 : anchor.x + 14;
  const top = anchor.y + 14 + box.height > innerHeight - 8 ? anchor.y - box.height - 14 : anchor.y + 14;
  tip.style.left = Math.max(8, Math.min(left, innerWidth - box.width - 8)) + 'px';
  tip.style.top = Math.max(8, top) + 'px';
}
const hideTip = () => { byId('tip').hidden = true; };
// What a mark of a chart does under pointer and keyboard.
const interactive = (lines, choose, label) => ({
  tabindex: 0, role: 'button', 'aria-label': label.slice(0, 300),
  onpointerenter: (e) => showTip(e, lines()), onpointermove: (e) => showTip(e, lines()), onpointerleave: hideTip,
  onfocus: (e) => { if (e.target.matches(':focus-visible')) showTip(e, lines()); }, onblur: hideTip,
  onclick: choose,
  onkeydown: (e) => { if (e.key === 'Enter' || e.key === ' ') { e.preventDefault(); choose(); } },
});

function download(blob, name) {
  const link = h('a', { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
// A copy that carries its looks, for use outside the page.
function standalone(svg) {
  const copy = svg.cloneNode(true);
  const from = [svg, ...svg.querySelectorAll('*')], to = [copy, ...copy.querySelectorAll('*')];
  const kept = ['fill', 'fill-opacity', 'stroke', 'stroke-width', 'stroke-dasharray', 'opacity', 'font-size', 'font-family', 'font-weight', 'text-anchor', 'paint-order', 'stroke-linejoin'];
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    to[i].setAttribute('style', kept.map((k) => k + ':' + style.getPropertyValue(k)).join(';'));
    for (const name of ['tabindex', 'role', 'class']) to[i].removeAttribute(name);
  });
  copy.prepend(byId('svg-root').querySelector('defs').cloneNode(true));
  const paper = s('rect', { width: '100%', height: '100%', fill: cssValue('--paper') });
  copy.prepend(paper);
  return new XMLSerializer().serializeToString(copy);
}
function exportPng(svg, name) {
  const box = svg.getBoundingClientRect();
  const image = new Image();
  image.onload = () => {
    const canvas = h('canvas', { width: box.width * 2, height: box.height * 2 });
    canvas.getContext('2d').drawImage(image, 0, 0, box.width * 2, box.height * 2);
    canvas.toBlob((blob) => download(blob, name + '.png'));
  };
  image.src = 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(standalone(svg));
}
const exportButtons = (find, name) => h('span', { class: 'exports' },
  h('button', { type: 'button', class: 'quiet', onclick: () => download(new Blob([standalone(find())], { type: 'image/svg+xml' }), name + '.svg'), 'aria-label': 'Save the chart as SVG' }, 'SVG'),
  h('button', { type: 'button', class: 'quiet', onclick: () => exportPng(find(), name), 'aria-label': 'Save the chart as PNG' }, 'PNG'));

// A row of buttons of which one is pressed.
function choice(label, options, current, choose) {
  return h('span', { class: 'choice', role: 'group', 'aria-label': label }, options.map(([value, text]) =>
    h('button', { type: 'button', 'aria-pressed': String(value === current), onclick: () => choose(value) }, text)));
}
function picker(label, options, current, choose) {
  return h('label', { class: 'picker' }, h('span', {}, label), h('select', { onchange: (e) => choose(e.target.value) },
    options.map(([value, text]) => h('option', { value, selected: String(value) === String(current) }, text.length > 80 ? text.slice(0, 80) + '\u2026' : text))));
}
