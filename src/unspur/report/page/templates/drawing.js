// The plane on its canvas: frame, densities, rows, the line of the last layer.
const ink = canvas.getContext('2d');
let colours = {};
let stamps = new Map();

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const named = (name) => style.getPropertyValue(name).trim();
  colours = Object.fromEntries(['ground', 'ink', 'quiet', 'rule', 'line', 'accent', 'wrong', 'right', 'halo', 'edge']
    .map((name) => [name, named(`--${name}`)]));
  colours.group = data.groups.map((_, k) => named(`--g${k}`));
  stamps = new Map();
}

const CIRCLE = 'M4 0A4 4 0 1 1-4 0A4 4 0 1 1 4 0Z';
const CROSS = 'M-4.4-2.6L-2.6-4.4L0-1.8L2.6-4.4L4.4-2.6L1.8 0L4.4 2.6L2.6 4.4L0 1.8L-2.6 4.4L-4.4 2.6L-1.8 0Z';

/** Colour and shape of a kind of row. */
function look(kind) {
  if (state.by === 'right') return kind ? [colours.wrong, CROSS] : [colours.right, CIRCLE];
  return kind === UNKNOWN ? [colours.line, CIRCLE] : [colours.group[kind], data.groups[kind].path];
}

/** A shape drawn once, to be stamped many times. */
function stamp(kind, scale) {
  const key = `${state.by} ${kind}`;
  if (!stamps.has(key)) {
    const [colour, path] = look(kind);
    const radius = rows > 2000 ? 0.66 : rows > 600 ? 0.8 : 0.95;
    const picture = document.createElement('canvas');
    picture.width = picture.height = Math.ceil(16 * scale);
    const pen = picture.getContext('2d');
    pen.scale(scale, scale);
    pen.translate(8, 8);
    pen.scale(radius, radius);
    pen.globalAlpha = rows > 2000 ? 0.6 : 0.75;
    pen.fillStyle = colour;
    pen.strokeStyle = colours.edge;
    pen.lineWidth = 0.7;
    pen.fill(new Path2D(path));
    pen.stroke(new Path2D(path));
    stamps.set(key, picture);
  }
  return stamps.get(key);
}

function ticks(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= 0.75 * rough);
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) found.push(Number((k * step).toPrecision(12)));
  return found;
}

function tick(value) {
  const size = Math.abs(value);
  const text = size && (size >= 1e5 || size < 1e-3) ? value.toExponential().replace('e+', 'e') : String(value);
  return text.replaceAll('-', '−');
}

function drawFrame() {
  const { width, height } = inner();
  const [left, right, bottom, top] = state.seen;
  ink.font = `12.5px ${getComputedStyle(document.body).fontFamily}`;
  ink.lineWidth = 1;
  for (const [across, values] of [[true, ticks(left, right, Math.max(4, width / 80))], [false, ticks(bottom, top, Math.max(4, height / 70))]]) {
    for (const value of values) {
      const [px, py] = toScreen(across ? value : left, across ? bottom : value);
      ink.strokeStyle = value === 0 ? colours.line : colours.rule;
      ink.beginPath();
      ink.moveTo(across ? px : size.left, across ? size.top : py);
      ink.lineTo(across ? px : size.left + width, across ? size.top + height : py);
      ink.stroke();
      ink.fillStyle = colours.quiet;
      ink.textAlign = across ? 'center' : 'right';
      ink.textBaseline = across ? 'top' : 'middle';
      ink.fillText(tick(value), across ? px : size.left - 6, across ? size.top + height + 5 : py);
    }
  }
  ink.fillStyle = colours.ink;
  ink.textAlign = 'left';
  ink.textBaseline = 'alphabetic';
  label(`${data.axes[state.x].name} →`, size.left, size.height - 8, width - 110);
  ink.save();
  ink.translate(12, size.top + height);
  ink.rotate(-Math.PI / 2);
  label(`${data.axes[state.y].name} →`, 0, 0, height);
  ink.restore();
}

/** Text that is cut where there is no room for all of it. */
function label(text, x, y, room) {
  let shown = text.length > 200 ? `${text.slice(0, 200)}…` : text;
  while (shown.length > 4 && ink.measureText(shown).width > room) shown = `${[...shown].slice(0, -3).join('')}…`;
  ink.fillText(shown, x, y);
}

/** Share of each kind of row along one axis, smoothed, as curves at the edge. */
function drawDensities(across) {
  const { width, height } = inner();
  const [low, high] = across ? state.seen.slice(0, 2) : state.seen.slice(2);
  const bins = 72;
  const room = (across ? size.top : size.right) - 8;
  const counts = new Map();
  for (let row = 0; row < rows; row++) {
    if (!visible(row)) continue;
    const kind = kindOf(row);
    if (!counts.has(kind)) counts.set(kind, { total: 0, bins: new Float64Array(bins) });
    const one = counts.get(kind);
    one.total += 1;
    const k = Math.floor((now(across ? state.x : state.y, row) - low) / (high - low) * bins);
    if (k >= 0 && k < bins) one.bins[k] += 1;
  }
  const curves = [...counts].map(([kind, one]) => [kind, smooth(one.bins).map((value) => value / one.total)]);
  const largest = curves.reduce((most, [, curve]) => Math.max(most, ...curve), 1e-9);
  for (const [kind, curve] of curves) {
    const [colour] = look(kind);
    ink.beginPath();
    curve.forEach((value, k) => {
      const along = (k + 0.5) / bins;
      const out = value / largest * room;
      const [px, py] = across
        ? [size.left + along * width, size.top - 3 - out]
        : [size.left + width + 3 + out, size.top + (1 - along) * height];
      if (k) ink.lineTo(px, py); else ink.moveTo(px, py);
    });
    ink.strokeStyle = colour;
    ink.lineWidth = 1.5;
    ink.stroke();
  }
  ink.lineWidth = 1;
}

function smooth(values) {
  const kernel = [0.06, 0.24, 0.4, 0.24, 0.06];
  return Array.from(values, (_, k) => kernel.reduce((sum, weight, m) => sum + weight * (values[k + m - 2] ?? 0), 0));
}

function drawLine(when, strength) {
  const found = line(when);
  if (!found || strength <= 0) return;
  const [a, b, c] = found;
  const [left, right, bottom, top] = state.seen;
  const ends = Math.abs(b) * (top - bottom) > Math.abs(a) * (right - left)
    ? [[left, -(c + a * left) / b], [right, -(c + a * right) / b]]
    : [[-(c + b * bottom) / a, bottom], [-(c + b * top) / a, top]];
  if (!ends.flat().every(Number.isFinite)) return;
  ink.save();
  ink.globalAlpha = strength;
  for (const [colour, width, dash] of [[colours.halo, 5, []], [colours.ink, 1.6, [7, 5]]]) {
    ink.strokeStyle = colour;
    ink.lineWidth = width;
    ink.setLineDash(dash);
    ink.beginPath();
    ink.moveTo(...toScreen(...ends[0]));
    ink.lineTo(...toScreen(...ends[1]));
    ink.stroke();
  }
  ink.restore();
}

function draw() {
  const scale = Math.max(1, window.devicePixelRatio || 1);
  const box = canvas.getBoundingClientRect();
  if (!box.width || !box.height) return;
  if (size.width !== box.width || size.height !== box.height || canvas.width !== Math.round(box.width * scale)) {
    [size.width, size.height] = [box.width, box.height];
    [canvas.width, canvas.height] = [Math.round(box.width * scale), Math.round(box.height * scale)];
    stamps = new Map();
  }
  state.seen ??= whole();
  const { width, height } = inner();
  ink.setTransform(scale, 0, 0, scale, 0, 0);
  ink.clearRect(0, 0, size.width, size.height);
  drawFrame();
  drawDensities(true);
  drawDensities(false);
  ink.save();
  ink.beginPath();
  ink.rect(size.left, size.top, width, height);
  ink.clip();
  for (let row = 0; row < rows; row++) {
    if (!visible(row)) continue;
    const [px, py] = position(row);
    if (inside(px, py)) ink.drawImage(stamp(kindOf(row), scale), px - 8, py - 8, 16, 16);
  }
  drawLine(0, 1 - state.share);
  drawLine(1, state.share);
  ink.restore();
  if (state.at >= 0) drawRing();
}

function drawRing() {
  const [px, py] = position(state.at);
  ink.beginPath();
  ink.arc(px, py, 8, 0, 2 * Math.PI);
  ink.strokeStyle = colours.ground;
  ink.lineWidth = 5;
  ink.stroke();
  ink.strokeStyle = colours.ink;
  ink.lineWidth = 2;
  ink.stroke();
  ink.lineWidth = 1;
}
