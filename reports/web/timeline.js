// The timeline of the selected case: for each rank a strip of the partition and its lanes; zoom, pan, hover, highlight a unit.
const timeline = { data: null, rows: [], from: 0, to: 1, end: 1, rank: 'all', unit: -1, canvas: null, shownCase: null };
const stripHeight = 12, laneHeight = 20, rankGap = 16, axisHeight = 30;

async function unpack(text) {
  const raw = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Response(new Blob([raw]).stream().pipeThrough(new DecompressionStream('deflate'))).json();
}

// Flat arrays to objects with absolute times. Clocks of ranks that do not match are laid side by side at their step's begin.
function spread(packed) {
  const begins = packed.ranks.map((r) => r.begin), longest = Math.max(1, ...packed.ranks.map((r) => r.end - r.begin));
  const aligned = Math.max(...begins) - Math.min(...begins) < longest / 2;
  const origin = Math.min(...begins);
  const ranks = packed.ranks.map((r) => {
    const shift = aligned ? r.begin - origin : 0;
    const pieces = [];
    for (let i = 0, t = shift; i < r.pieces.length; i += 4) {
      pieces.push({ cls: r.pieces[i], unit: r.pieces[i + 1], pass: r.pieces[i + 2], begin: t, end: t + r.pieces[i + 3] });
      t += r.pieces[i + 3];
    }
    const lanes = r.lanes.map(([lane, flat]) => {
      const spans = [];
      for (let i = 0, t = shift; i < flat.length; i += 7) {
        t += flat[i + 3];
        spans.push({ kind: flat[i], unit: flat[i + 1], pass: flat[i + 2], begin: t, end: t + flat[i + 4], bytes: flat[i + 5], lag: flat[i + 6] });
      }
      return { lane, spans };
    });
    return { rank: r.rank, begin: shift, end: shift + r.end - r.begin, pieces, lanes };
  });
  return { ranks, aligned, end: Math.max(1, ...ranks.map((r) => r.end)), unitMetrics: packed.units, savings: packed.savings };
}

const spanColour = (span) => ['--c0', '--c9', '--c6', span.pass === 2 ? '--c3' : '--c2', '--c4', '--c5', '--c5', '--c7', '--c8', '--c10'][span.kind];

function layRows() {
  let y = axisHeight;
  timeline.rows = [];
  for (const r of timeline.data.ranks) {
    if (timeline.rank !== 'all' && String(r.rank) !== timeline.rank) continue;
    const first = y;
    timeline.rows.push({ kind: 'strip', rank: r, y, height: stripHeight, label: 'rank ' + r.rank });
    y += stripHeight + 4;
    for (const lane of r.lanes) {
      timeline.rows.push({ kind: 'lane', rank: r, y, height: laneHeight - 3, label: laneNames[lane.lane], spans: lane.spans });
      y += laneHeight;
    }
    timeline.rows[timeline.rows.length - 1].last = true;
    for (const p of r.pieces) p.band = [first, y];
    y += rankGap;
  }
  return y;
}

function drawTimeline() {
  const canvas = timeline.canvas;
  if (!canvas || !timeline.data) return;
  const height = layRows(), width = Math.max(280, canvas.parentElement.clientWidth), dpr = devicePixelRatio || 1;
  canvas.width = width * dpr;
  canvas.height = height * dpr;
  canvas.style.height = height + 'px';
  const g = canvas.getContext('2d');
  g.scale(dpr, dpr);
  paintTimeline(g, width, height);
}
function timelineSvg() {
  const height = layRows(), width = Math.max(280, timeline.canvas.parentElement.clientWidth), pen = new SvgPen(width, height);
  pen.fillStyle = cssValue('--paper');
  pen.fillRect(0, 0, width, height);
  paintTimeline(pen, width, height);
  return new XMLSerializer().serializeToString(pen.svg);
}

function paintTimeline(g, width, height) {
  const ink = cssValue('--ink'), faint = cssValue('--faint'), line = cssValue('--line'), tint = cssValue('--tint');
  const left = timeline.left = width < 620 ? 62 : 108;
  const xOf = (t) => left + (t - timeline.from) / (timeline.to - timeline.from) * (width - left - 8);
  timeline.xOf = xOf;
  g.font = chartFont(11);
  drawTimeAxis(g, width, height, xOf, { ink, faint, line });
  const colours = new Map();
  const colour = (name) => { if (!colours.has(name)) colours.set(name, cssValue(name)); return colours.get(name); };
  g.save();
  g.beginPath();
  g.rect(left, axisHeight - 6, width - left - 6, height);
  g.clip();
  for (const row of timeline.rows) if (row.kind === 'strip') drawExposed(g, row, xOf, tint);
  for (const row of timeline.rows) {
    if (row.kind === 'strip') drawPieces(g, row, xOf, colour); else drawSpans(g, row, xOf, colour, line);
  }
  for (const row of timeline.rows) if (row.kind === 'strip') drawUncertainty(g, row, xOf, ink);
  g.restore();
  g.textAlign = 'right';
  for (const row of timeline.rows) {
    g.fillStyle = row.kind === 'strip' ? ink : faint;
    g.font = (row.kind === 'strip' ? 'bold ' : '') + chartFont(11);
    g.fillText(left < 100 ? row.label.replace('reduce-scatter', 'red-scat').replace('all-', 'all-') : row.label, left - 8, row.y + row.height - (row.kind === 'strip' ? 2 : 4));
  }
}

function drawTimeAxis(g, width, height, xOf, { faint, line }) {
  const span = timeline.to - timeline.from;
  const scale = scaleFormat('time', timeline.to);
  const step = ticks(span, Math.max(2, Math.floor(width / 130)))[1] || span;
  g.textAlign = 'center';
  for (let t = Math.ceil(timeline.from / step) * step; t <= timeline.to; t += step) {
    g.fillStyle = line;
    g.fillRect(xOf(t), 18, 1, height - 18);
    g.fillStyle = faint;
    g.fillText(scale.text(Number(t.toPrecision(9))), xOf(t), 13);
  }
  g.textAlign = 'left';
  g.fillText(scale.unit, 4, 13);
  const part = (width - timeline.left - 8) / timeline.end;
  g.fillStyle = cssValue('--accent');
  if (span < timeline.end * 0.999) g.fillRect(timeline.left + timeline.from * part, 18, Math.max(4, span * part), 3);
}

const visible = (span) => span.end > timeline.from && span.begin < timeline.to;
const highlighted = (span) => timeline.unit < 0 || span.unit === timeline.unit;

function drawExposed(g, row, xOf, tint) {
  g.fillStyle = tint;
  for (const p of row.rank.pieces) {
    if (exposedClasses.includes(p.cls) && visible(p)) g.fillRect(xOf(p.begin), p.band[0], Math.max(0.5, xOf(p.end) - xOf(p.begin)), p.band[1] - p.band[0] - 2);
  }
}
// How far the stamps of two ranks may be off each other, as a bar around the begin of each rank's step but the first's.
function drawUncertainty(g, row, xOf, ink) {
  const u = timeline.shownCase.clock_ns;
  if (!known(u) || !timeline.data.aligned || row.rank === timeline.data.ranks[0]) return;
  const from = xOf(row.rank.begin - u), to = xOf(row.rank.begin + u), y = row.y + row.height / 2;
  if (to - from < 1.5) return;
  g.fillStyle = ink;
  g.fillRect(from, y - 0.75, to - from, 1.5);
  g.fillRect(from - 0.75, y - 4, 1.5, 8);
  g.fillRect(to - 0.75, y - 4, 1.5, 8);
}
function drawPieces(g, row, xOf, colour) {
  for (const p of row.rank.pieces) {
    if (!visible(p)) continue;
    g.globalAlpha = highlighted(p) ? 1 : 0.25;
    g.fillStyle = colour('--c' + p.cls);
    g.fillRect(xOf(p.begin), row.y, Math.max(0.6, xOf(p.end) - xOf(p.begin)), row.height);
  }
  g.globalAlpha = 1;
}
function drawSpans(g, row, xOf, colour, line) {
  g.fillStyle = line;
  g.fillRect(0, row.y + row.height + 1, g.canvas.width, 1);
  g.textAlign = 'left';
  let drawnTo = -1, drawnKind = -1;
  for (const span of row.spans) {
    if (!visible(span)) continue;
    const x = xOf(span.begin), end = xOf(span.end), w = Math.max(0.6, end - x - (end - x > 3 ? 0.7 : 0));
    if (end < drawnTo && span.kind === drawnKind && timeline.unit < 0) continue;  // it would change no pixel
    drawnTo = Math.ceil(end * 2) / 2;
    drawnKind = span.kind;
    g.globalAlpha = highlighted(span) ? 1 : 0.18;
    g.fillStyle = colour(spanColour(span));
    g.fillRect(x, row.y, w, row.height);
    if (w > 34 && span.unit >= 0 && span.kind < 7) {
      const name = shortUnit(span.unit), from = Math.max(x, timeline.left) + 4, room = Math.min(end, g.canvas.clientWidth) - from - 4;
      if (room > 24) {
        g.fillStyle = colour(span.kind === 3 && span.pass !== 2 ? '--on-light' : '--on-dark');
        g.fillText(fitted(name, room, 11), from, row.y + row.height - 4);
      }
    }
  }
  g.globalAlpha = 1;
}
const shortUnit = (unit) => unitName(timeline.shownCase, unit).replace(/^(model|transformer|gpt_neox|encoder|decoder)\.(layers|h|block|blocks)\./, '');

function spanUnder(event) {
  const box = timeline.canvas.getBoundingClientRect();
  const y = event.clientY - box.top, x = event.clientX - box.left;
  if (x < timeline.left) return null;
  const t = timeline.from + (x - timeline.left) / (box.width - timeline.left - 8) * (timeline.to - timeline.from);
  const slack = (timeline.to - timeline.from) / box.width * 1.5;
  const row = timeline.rows.find((r) => y >= r.y - 1 && y <= r.y + r.height + 2);
  if (!row) return null;
  const list = row.kind === 'strip' ? row.rank.pieces : row.spans;
  const inside = list.find((p) => t >= p.begin && t < p.end) || list.find((p) => t >= p.begin - slack && t < p.end + slack);
  return inside ? { row, item: inside } : null;
}
function spanLines({ row, item }) {
  const where = [item.unit >= 0 && unitName(timeline.shownCase, item.unit), passes[item.pass]].filter(Boolean).join(', ');
  const times = [['begins at', duration(item.begin - row.rank.begin)], ['lasts', duration(item.end - item.begin)]];
  if (row.kind === 'strip') return [classes[item.cls].label, where, ...times, classes[item.cls].meaning];
  const moved = item.kind >= 3 && item.kind <= 6 && item.bytes > 0 && item.end > item.begin;
  return [kinds[item.kind] + (row.label === 'host' ? ' (host)' : ''), where, ...times, item.bytes > 0 && ['buffer', bytes(item.bytes)],
    moved && ['buffer / time', threeDigits(item.bytes / (item.end - item.begin)) + ' GB/s'], item.lag > 0 && ['issued before', duration(item.lag)],
    timeline.shownCase.emulated && moved && 'emulated network'];
}

function zoomTo(from, to) {
  const shortest = Math.min(timeline.end, 200);
  let span = Math.max(shortest, Math.min(timeline.end, to - from));
  from = Math.max(0, Math.min(from, timeline.end - span));
  timeline.from = from;
  timeline.to = from + span;
  state.zoom = span < timeline.end * 0.999 ? [from, from + span] : null;
  keepState();
  requestAnimationFrame(drawTimeline);
}
const zoomBy = (factor, centre = (timeline.from + timeline.to) / 2) =>
  zoomTo(centre - (centre - timeline.from) * factor, centre + (timeline.to - centre) * factor);
const panBy = (share) => { const d = (timeline.to - timeline.from) * share; zoomTo(timeline.from + d, timeline.to + d); };
const timeAt = (clientX) => {
  const box = timeline.canvas.getBoundingClientRect();
  return timeline.from + (clientX - box.left - timeline.left) / (box.width - timeline.left - 8) * (timeline.to - timeline.from);
};

const keepState = later(() => writeState(), 250);
// Highlights the next unit whose name holds `text` and moves to where it is busy next; from the end it begins again.
function findUnit(text) {
  const c = timeline.shownCase, words = text.trim().toLowerCase();
  const names = new Map();
  const named = (unit) => { if (!names.has(unit)) names.set(unit, unitName(c, unit).toLowerCase()); return names.get(unit); };
  const hits = !words ? [] : timeline.rows.flatMap((r) => (r.spans || []).filter((sp) => sp.unit >= 0 && named(sp.unit).includes(words)).map((item) => ({ row: r, item }))).sort((a, b) => a.item.begin - b.item.begin);
  if (!hits.length) return say(words ? 'No unit is named like that' : '');
  timeline.found = timeline.foundText === words ? (timeline.found + 1) % hits.length : 0;
  timeline.foundText = words;
  const { row, item } = hits[timeline.found], length = item.end - item.begin;
  timeline.unit = -1;
  highlightUnit(item.unit);
  zoomTo(item.begin - 3 * length, item.end + 3 * length);
  byId('found').textContent = (timeline.found + 1) + ' of ' + hits.length;
  say((timeline.found + 1) + ' of ' + hits.length + ': ' + spanLines({ row, item }).slice(0, 2).join(', '));
}

function highlightUnit(unit) {
  timeline.unit = state.unit = timeline.unit === unit ? -1 : unit;
  keepState();
  say(timeline.unit < 0 ? 'All units' : 'Unit ' + unitName(timeline.shownCase, timeline.unit) + ' highlighted');
  const list = byId('case').querySelector('.unit-picker select');
  if (list) list.value = String(timeline.unit);
  drawTimeline();
}

function listenToTimeline(canvas) {
  const fingers = new Map();
  let moved = 0;
  canvas.addEventListener('pointerdown', (e) => { fingers.set(e.pointerId, e.clientX); moved = 0; canvas.setPointerCapture(e.pointerId); });
  const up = (e) => {
    if (fingers.delete(e.pointerId) && e.type === 'pointerup' && moved < 4) {
      const hit = spanUnder(e);
      if (hit && hit.item.unit >= 0) highlightUnit(hit.item.unit); else if (timeline.unit >= 0) highlightUnit(timeline.unit);
    }
  };
  canvas.addEventListener('pointerup', up);
  canvas.addEventListener('pointercancel', up);
  canvas.addEventListener('pointerleave', hideTip);
  canvas.addEventListener('pointermove', (e) => {
    if (!fingers.has(e.pointerId)) {
      const hit = spanUnder(e);
      return hit ? showTip(e, spanLines(hit)) : hideTip();
    }
    const before = fingers.get(e.pointerId);
    moved += Math.abs(e.clientX - before);
    hideTip();
    const other = [...fingers].find(([id]) => id !== e.pointerId);
    if (other) {
      const was = Math.abs(before - other[1]), now = Math.abs(e.clientX - other[1]);
      if (was > 10 && now > 10) zoomBy(was / now, timeAt((e.clientX + other[1]) / 2));
    } else {
      const shift = timeAt(before) - timeAt(e.clientX);
      zoomTo(timeline.from + shift, timeline.to + shift);
    }
    fingers.set(e.pointerId, e.clientX);
  });
  canvas.addEventListener('wheel', (e) => {
    const sideways = Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey;
    if (!sideways && !e.ctrlKey && !e.metaKey && document.activeElement !== canvas) return;
    e.preventDefault();
    if (sideways) panBy((e.deltaX || e.deltaY) / 800); else zoomBy(Math.exp(e.deltaY / 300), timeAt(e.clientX));
  }, { passive: false });
  canvas.addEventListener('dblclick', (e) => zoomBy(0.4, timeAt(e.clientX)));
  canvas.addEventListener('keydown', (e) => {
    const action = { '+': () => zoomBy(0.6), '=': () => zoomBy(0.6), '-': () => zoomBy(1.6), ArrowLeft: () => panBy(-0.2), ArrowRight: () => panBy(0.2),
      0: () => zoomTo(0, timeline.end), Home: () => zoomTo(0, timeline.to - timeline.from), End: () => zoomTo(timeline.end, timeline.end * 2), Escape: () => highlightUnit(-1) }[e.key];
    if (action && !e.ctrlKey && !e.metaKey) { e.preventDefault(); action(); }
  });
}

function timelineControls(c) {
  const button = (text, label, action) => h('button', { type: 'button', class: 'quiet', 'aria-label': label, onclick: action }, text);
  const used = [...new Set(timeline.data.ranks.flatMap((r) => r.lanes.flatMap((l) => l.spans.map((sp) => sp.unit))))].filter((u) => u >= 0).sort((a, b) => a - b);
  const unitPicker = picker('Unit', [[-1, 'all units'], ...used.map((u) => [u, unitName(c, u)])], timeline.unit, (v) => { const before = timeline.unit; timeline.unit = -1; highlightUnit(v === '-1' ? -1 : Number(v)); if (before < 0 && v === '-1') drawTimeline(); });
  unitPicker.classList.add('unit-picker');
  return h('div', { class: 'controls' },
    timeline.data.ranks.length > 1 && picker('Ranks', [['all', 'all ' + timeline.data.ranks.length], ...timeline.data.ranks.map((r) => [String(r.rank), 'rank ' + r.rank])], timeline.rank, (v) => { timeline.rank = v; drawTimeline(); }),
    unitPicker,
    button('\u2212', 'Zoom out', () => zoomBy(1.6)), button('+', 'Zoom in', () => zoomBy(0.6)), button('Fit', 'Show the whole step', () => zoomTo(0, timeline.end)),
    h('label', { class: 'picker' }, h('span', {}, 'Find unit'), h('input', { type: 'search', size: 14, placeholder: 'layers.3, then Enter', onkeydown: (e) => { if (e.key === 'Enter') { e.preventDefault(); findUnit(e.target.value); } } })),
    h('span', { class: 'muted', id: 'found' }),
    button('SVG', 'Save the timeline as SVG', () => download(new Blob([timelineSvg()], { type: 'image/svg+xml' }), 'timeline-' + c.id.slice(0, 60) + '.svg')),
    button('PNG', 'Save the timeline as PNG', () => timeline.canvas.toBlob((blob) => download(blob, 'timeline-' + c.id.slice(0, 60) + '.png'))));
}

// Puts the timeline of `c` into `where`, once it is unpacked; a later call wins over an earlier one.
async function showTimeline(c, where) {
  if (timeline.shownCase !== c) Object.assign(timeline, { data: null, shownCase: c, rank: 'all', unit: state.unit });
  const note = (text) => put(where, h('p', { class: 'muted' }, text));
  if (!c.timeline) {
    const t = sweep().timelines;
    return note(!ran(c) ? 'This case did not run to its end, so it has no timeline.' : t.embedded < t.with_spans ?
      'This page holds the timelines of ' + t.embedded + ' of ' + t.with_spans + ' traced cases, to stay small; the full trace of this one, if it was traced, is traces/' + c.id.slice(0, 100) + '.json.gz beside the report.' : 'This case was not traced.');
  }
  if (typeof DecompressionStream === 'undefined') return note('This browser is too old to unpack timelines; open traces/' + c.id.slice(0, 100) + '.json.gz in Perfetto instead.');
  if (!timeline.data) {
    const data = spread(await unpack(c.timeline));
    if (timeline.shownCase !== c) return;
    Object.assign(timeline, { data, end: data.end, from: 0, to: data.end, found: -1, foundText: '', unit: state.unit });
    if (state.zoom && state.zoom[0] < data.end) Object.assign(timeline, { from: state.zoom[0], to: Math.min(data.end, state.zoom[1]) });
  }
  if (!timeline.data.ranks.length) return note('This case was not traced.');
  const canvas = timeline.canvas = h('canvas', { tabindex: 0, role: 'img', 'aria-label': 'Timeline of ' + labelOf(c) + ', ' + plural(timeline.data.ranks.length, 'rank', 'ranks') + ', ' + duration(timeline.end) + '. Keys: plus and minus zoom, arrows move, 0 shows all.' });
  const missing = c.ranks.length > timeline.data.ranks.length ? ' Only ' + plural(timeline.data.ranks.length, 'rank is', 'ranks are') + ' in this page; the full trace is beside it.' : '';
  put(where, timelineControls(c), h('div', { class: 'canvas-frame' }, canvas),
    h('p', { class: 'muted hint' }, 'The strip of each rank is its partition; tinted are the times in which its compute lane waited for communication. Drag to move, ctrl + wheel or pinch to zoom, click to highlight a unit.' +
      (known(c.clock_ns) && timeline.data.aligned ? ' All ranks stand on one clock, which the ends of their shared collectives confirm to within ' + duration(c.clock_ns) + ', the bar at the begin of a rank.' : '') +
      (timeline.data.aligned ? '' : ' The clocks of the ranks do not match: each begins at its own step.') + missing));
  listenToTimeline(canvas);
  drawTimeline();
}
