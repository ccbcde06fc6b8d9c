// SvgPen: as much of a canvas context as the timeline draws with, written as SVG, so that a drawing can be saved as one.
class SvgPen {
  constructor(width, height) {
    Object.assign(this, { fillStyle: '#000', font: '', textAlign: 'left', globalAlpha: 1, window: null, open: null, kept: [] });
    this.canvas = { width, height, clientWidth: width };
    this.svg = s('svg', { width, height, viewBox: `0 0 ${width} ${height}`, xmlns: svgNamespace });
  }
  scale() {}
  save() { this.kept.push(this.window); }
  restore() { this.window = this.kept.pop(); }
  beginPath() { this.open = null; }
  rect(x, y, width, height) { this.open = { x, y, right: x + width, bottom: y + height }; }
  clip() { this.window = this.open; }
  fillRect(x, y, width, height) {
    const c = this.window, left = c ? Math.max(x, c.x) : x, right = c ? Math.min(x + width, c.right) : x + width;
    if (right <= left) return;
    this.svg.append(s('rect', { x: left.toFixed(2), y: y.toFixed(2), width: (right - left).toFixed(2), height: height.toFixed(2), fill: this.fillStyle, 'fill-opacity': this.globalAlpha < 1 && this.globalAlpha }));
  }
  fillText(text, x, y) {
    if (this.window && (x < this.window.x || x > this.window.right)) return;
    const [, bold, size, family] = this.font.match(/^(bold )?([\d.]+)px (.*)$/) || [null, '', '11', 'sans-serif'];
    this.svg.append(s('text', { x: x.toFixed(2), y: y.toFixed(2), fill: this.fillStyle, 'font-size': size, 'font-family': family, 'font-weight': bold && 'bold', 'fill-opacity': this.globalAlpha < 1 && this.globalAlpha,
      'text-anchor': { right: 'end', center: 'middle' }[this.textAlign] }, text));
  }
}
