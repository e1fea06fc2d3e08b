// Read into one function of its own. Sections: data, plane, drawing, picking, controls, copying.

// What the page knows, decoded: scores as numbers, groups and answers by row.
const data = JSON.parse(document.getElementById('data').textContent);

function bytes(text) {
  const raw = atob(text);
  const found = new Uint8Array(raw.length);
  for (let k = 0; k < raw.length; k++) found[k] = raw.charCodeAt(k);
  return found;
}

function words16(text) {
  const raw = bytes(text);
  const view = new DataView(raw.buffer);
  const found = new Uint16Array(raw.length / 2);
  for (let k = 0; k < found.length; k++) found[k] = view.getUint16(2 * k, true);
  return found;
}

const rows = data.rows;
const UNKNOWN = 65535;
const group = words16(data.group);
const answers = bytes(data.right);
const packed = [words16(data.before), words16(data.after)];

/** Score of a row along an axis; `when` is 0 (before) or 1 (after). */
function score(when, axis, row) {
  return data.low[axis] + packed[when][axis * rows + row] / 65535 * ((data.high[axis] - data.low[axis]) || 1);
}

/** Whether the prediction of the head is right for a row. */
function isRight(when, row) {
  return Boolean(answers[row] & (when ? 2 : 1));
}

function groupName(row) {
  return group[row] === UNKNOWN ? 'concept not known' : data.groups[group[row]].name;
}

/** A score along an axis: with its decimals, or as a power of ten where it is very large or very small. */
function figure(value, axis) {
  if (value === null) return '–';
  const digits = data.digits[axis];
  if (digits === null && value !== 0) {
    const [figures, exponent] = Math.abs(value).toExponential(1).split('e');
    const raised = [...String(Number(exponent))].map((c) => (c === '-' ? '⁻' : '⁰¹²³⁴⁵⁶⁷⁸⁹'[c])).join('');
    return `${value < 0 ? '−' : ''}${figures} × 10${raised}`;
  }
  const text = Math.abs(value).toFixed(digits ?? 2);
  return (value < 0 && Number(text) ? '−' : '') + text;
}

// What is looked at: two axes, before or after, which groups, and the part of the plane that is seen.
const canvas = document.getElementById('plane');
const calm = matchMedia('(prefers-reduced-motion: reduce)');
const state = {
  x: data.first[0], y: data.first[1],
  when: 0,        // 0 before, 1 after
  share: 0,       // how far the change from before to after has come
  by: 'group',
  hidden: new Set(),
  seen: null,     // [left, right, bottom, top] in scores
  at: -1,         // the row that is pointed at
};
const size = { width: 0, height: 0, left: 72, right: 54, top: 46, bottom: 44 };

function inner() {
  return { width: size.width - size.left - size.right, height: size.height - size.top - size.bottom };
}

/** Everything, before and after, with a little room. */
function whole() {
  return [state.x, state.y].flatMap((axis) => {
    let [low, high] = [Infinity, -Infinity];
    for (let when = 0; when < 2; when++) {
      for (let row = 0; row < rows; row++) {
        const value = score(when, axis, row);
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
    if (!(high > low)) [low, high] = rows ? [low - 1, low + 1] : [-1, 1];
    const room = 0.05 * (high - low);
    return [low - room, high + room];
  });
}

function toScreen(x, y) {
  const [left, right, bottom, top] = state.seen;
  const { width, height } = inner();
  return [size.left + (x - left) / (right - left) * width, size.top + (top - y) / (top - bottom) * height];
}

function toScores(px, py) {
  const [left, right, bottom, top] = state.seen;
  const { width, height } = inner();
  return [left + (px - size.left) / width * (right - left), top - (py - size.top) / height * (top - bottom)];
}

/** Scores of a row as drawn now, on the way from before to after. */
function now(axis, row) {
  const before = score(0, axis, row);
  return state.share ? before + state.share * (score(1, axis, row) - before) : before;
}

function position(row) {
  return toScreen(now(state.x, row), now(state.y, row));
}

function inside(px, py) {
  const { width, height } = inner();
  return px >= size.left - 1 && px <= size.left + width + 1 && py >= size.top - 1 && py <= size.top + height + 1;
}

/** What a row is drawn as: number of its group, or 0 for right and 1 for wrong. */
function kindOf(row) {
  return state.by === 'group' ? group[row] : isRight(state.when, row) ? 0 : 1;
}

function visible(row) {
  return !state.hidden.has(kindOf(row));
}

function zoom(factor, px, py) {
  const { width, height } = inner();
  const [x, y] = toScores(px ?? size.left + width / 2, py ?? size.top + height / 2);
  const [left, right, bottom, top] = state.seen;
  const all = whole();
  if (factor < 1 ? right - left < (all[1] - all[0]) / 400 : right - left > 4 * (all[1] - all[0])) return;
  state.seen = [x + (left - x) * factor, x + (right - x) * factor, y + (bottom - y) * factor, y + (top - y) * factor];
}

function move(dx, dy) {
  const [left, right, bottom, top] = state.seen;
  const { width, height } = inner();
  const [x, y] = [dx / width * (right - left), dy / height * (top - bottom)];
  state.seen = [left - x, right - x, bottom + y, top + y];
}

/** The decision boundary of a head: the line a·x + b·y + c = 0 in the plane of the two axes, or null. */
function line(when) {
  const boundary = data.boundary[when];
  const [i, j] = [state.x, state.y];
  if (!boundary || i === j) return null;
  const [p, q, r] = [data.gram[i][i], data.gram[i][j], data.gram[j][j]];
  const [u, v] = [boundary.along[i], boundary.along[j]];
  const determinant = p * r - q * q;
  if (Math.abs(determinant) < 1e-9 * p * r) return null;
  return [(u * r - v * q) / determinant, (v * p - u * q) / determinant, boundary.offset];
}

// The plane on its canvas: frame, densities, rows, the decision boundary of the head.
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

// Rows one by one: with a pointer, or with the arrow keys; what is said about each.
const tip = document.getElementById('tip');
const tipPicture = document.getElementById('tip-picture');
const announce = document.getElementById('announce');
const sheet = data.sheet ? new Image() : null;
if (sheet) {
  sheet.addEventListener('load', () => { if (state.at >= 0) drawPicture(state.at); });
  sheet.src = data.sheet.source;
}

function drawPicture(row) {
  const shown = Boolean(sheet) && row < data.sheet.count;
  tipPicture.hidden = !shown;
  if (!shown || !sheet.complete) return;
  const { size: side, columns } = data.sheet;
  const pen = tipPicture.getContext('2d');
  pen.imageSmoothingEnabled = !data.sheet.coarse;
  pen.imageSmoothingQuality = 'high';
  pen.drawImage(sheet, row % columns * side, Math.floor(row / columns) * side, side, side, 0, 0, 128, 128);
}

function answerOf(when, row) {
  return isRight(when, row) ? 'right' : 'wrong';
}

function facts(row) {
  const axes = state.x === state.y ? [state.x] : [state.x, state.y];
  const along = axes.map((axis) => [data.axes[axis].name, figure(score(state.when, axis, row), axis)]);
  return [...along, ['head, original rows', answerOf(0, row)], [`head, after ${data.method}`, answerOf(1, row)]];
}

function show(row, aloud) {
  state.at = row;
  tip.querySelector('.id').textContent = data.ids[row];
  tip.querySelector('.kind').textContent = groupName(row);
  tip.querySelector('.text').textContent = data.texts ? data.texts[row] : '';
  const list = tip.querySelector('dl');
  list.replaceChildren(...facts(row).flatMap(([name, value]) => {
    const [term, description] = [document.createElement('dt'), document.createElement('dd')];
    term.textContent = name;
    description.textContent = value;
    return [term, description];
  }));
  drawPicture(row);
  tip.hidden = false;
  place();
  if (aloud) {
    const parts = [data.texts ? data.texts[row] : '', data.ids[row], groupName(row)];
    announce.textContent = [...parts.filter(Boolean), ...facts(row).map((pair) => pair.join(': '))].join(', ');
  }
  draw();
}

/** The tip beside its row, or above or below where it is too narrow for that; inside of the plot. */
function place() {
  const [px, py] = position(state.at);
  const box = tip.getBoundingClientRect();
  const within = (value, most) => Math.round(Math.min(Math.max(0, value), Math.max(0, most)));
  const beside = px + 14 + box.width <= size.width ? px + 14 : px - 14 - box.width;
  const fits = beside >= 0;
  const under = py + 14 + box.height <= size.height ? py + 14 : py - 14 - box.height;
  const x = within(fits ? beside : px - box.width / 2, size.width - box.width);
  const y = within(fits ? py - box.height / 2 : under, size.height - box.height);
  tip.style.transform = `translate(${x}px, ${y}px)`;
}

function hide() {
  if (state.at < 0) return;
  state.at = -1;
  tip.hidden = true;
  announce.textContent = '';
  draw();
}

/** The row nearest to a place on the canvas, or -1 where none is near. */
function nearest(px, py, reach) {
  let [found, least] = [-1, reach * reach];
  for (let row = 0; row < rows; row++) {
    if (!visible(row)) continue;
    const [x, y] = position(row);
    if (!inside(x, y)) continue;
    const distance = (x - px) ** 2 + (y - py) ** 2;
    if (distance < least) [found, least] = [row, distance];
  }
  return found;
}

/** The next row in a direction (dx, dy on the canvas): near, and not far to the side. Rows on one spot in turn. */
function next(dx, dy) {
  const [x, y] = position(state.at);
  let [found, least] = [-1, Infinity];
  for (let row = 0; row < rows; row++) {
    if (row === state.at || !visible(row)) continue;
    const [px, py] = position(row);
    if (!inside(px, py)) continue;
    const along = (px - x) * dx + (py - y) * dy;
    const aside = Math.abs((px - x) * dy) + Math.abs((py - y) * dx);
    const same = Math.abs(along) < 0.01 && aside < 0.01;
    if (same ? (row - state.at) * (dx + dy) <= 0 : along < 0.01) continue;
    const cost = same ? -1 + Math.abs(row - state.at) / rows : along + 3 * aside;
    if (cost < least) [found, least] = [row, cost];
  }
  return found;
}

/** The first or the last visible row from left to right. */
function outermost(sign) {
  let [found, best] = [-1, -Infinity];
  for (let row = 0; row < rows; row++) {
    if (!visible(row)) continue;
    const [px, py] = position(row);
    if (inside(px, py) && sign * px > best) [found, best] = [row, sign * px];
  }
  return found;
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

canvas.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  let row = -1;
  if (event.key in ARROWS) {
    row = state.at < 0 || !visible(state.at) ? nearest(size.left + inner().width / 2, size.top + inner().height / 2, Infinity)
      : next(...ARROWS[event.key]);
  } else if (event.key === 'Home' || event.key === 'End') row = outermost(event.key === 'Home' ? -1 : 1);
  else if (event.key === 'Escape') hide();
  else if (event.key === '+' || event.key === '=') lookCloser(1 / 1.4);
  else if (event.key === '-') lookCloser(1.4);
  else if (event.key === '0') lookCloser(0);
  else return;
  event.preventDefault();
  if (row >= 0) show(row, true);
});

function lookCloser(factor, px, py) {
  if (factor) zoom(factor, px, py); else state.seen = whole();
  if (state.at >= 0 && inside(...position(state.at))) { draw(); place(); } else { hide(); draw(); }
}

let drag = null;
canvas.addEventListener('pointerdown', (event) => {
  canvas.focus({ preventScroll: true });
  if (event.pointerType === 'mouse') {
    drag = [event.offsetX, event.offsetY];
    canvas.setPointerCapture(event.pointerId);
  }
});
canvas.addEventListener('pointermove', (event) => {
  if (drag && event.buttons) {
    move(event.offsetX - drag[0], event.offsetY - drag[1]);
    drag = [event.offsetX, event.offsetY];
    hide();
    draw();
    return;
  }
  const row = nearest(event.offsetX, event.offsetY, event.pointerType === 'mouse' ? 12 : 24);
  if (row < 0) hide(); else if (row !== state.at) show(row, false);
});
canvas.addEventListener('pointerup', (event) => {
  drag = null;
  if (event.pointerType !== 'mouse') {
    const row = nearest(event.offsetX, event.offsetY, 24);
    if (row < 0) hide(); else show(row, false);
  }
});
canvas.addEventListener('pointerleave', (event) => { if (event.pointerType === 'mouse' && !drag) hide(); });
canvas.addEventListener('blur', hide);
canvas.addEventListener('wheel', (event) => {
  if (document.activeElement !== canvas && !event.ctrlKey) return;
  event.preventDefault();
  lookCloser(Math.exp(Math.max(-0.3, Math.min(0.3, event.deltaY * 0.0015))), event.offsetX, event.offsetY);
}, { passive: false });

// The controls beside the plane, and what follows from outside: other colours, other sizes, paper.
const means = document.getElementById('means');
const legend = document.getElementById('legend');

function fillMeans() {
  [state.x, state.y].forEach((axis, k) => {
    means.querySelector(`[data-axis="${k}"]`).textContent = data.axes[axis].name;
    means.querySelectorAll('tbody tr').forEach((line, g) => {
      for (let when = 0; when < 2; when++) {
        line.querySelectorAll('td')[2 * k + when].textContent = figure(data.means[when][g][axis], axis);
      }
    });
  });
}

function fillLegend() {
  const unknown = group.some((g) => g === UNKNOWN);
  const kinds = state.by === 'right' ? [[0, 'right'], [1, 'wrong']]
    : [...data.groups.map((one, k) => [k, one.name]), ...(unknown ? [[UNKNOWN, 'concept not known']] : [])];
  legend.replaceChildren(...kinds.map(([kind, name]) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.setAttribute('aria-pressed', String(!state.hidden.has(kind)));
    const mark = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    mark.setAttribute('viewBox', '-6 -6 12 12');
    mark.setAttribute('class', 'mark');
    mark.setAttribute('aria-hidden', 'true');
    const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
    const [colour, shape] = look(kind);
    path.setAttribute('d', shape);
    path.style.fill = colour;
    mark.append(path);
    const text = document.createElement('span');
    text.textContent = name;
    button.append(mark, text);
    button.addEventListener('click', () => {
      if (!state.hidden.delete(kind)) state.hidden.add(kind);
      button.setAttribute('aria-pressed', String(!state.hidden.has(kind)));
      hide();
      draw();
    });
    return button;
  }));
}

function setAxis(which, value) {
  state[which] = value;
  state.seen = null;
  hide();
  fillMeans();
  draw();
}

let running = 0;
/** Rows move to where they are before or after; at once where motion is not wanted. */
function setWhen(when) {
  state.when = when;
  hide();
  cancelAnimationFrame(running);
  if (calm.matches || document.hidden) {
    state.share = when;
    draw();
    return;
  }
  const from = state.share;
  let start = null;
  const step = (time) => {
    start ??= time;
    const t = Math.min(1, (time - start) / 700);
    const eased = t * t * (3 - 2 * t);
    state.share = from + (when - from) * eased;
    draw();
    if (t < 1) running = requestAnimationFrame(step);
  };
  running = requestAnimationFrame(step);
}

document.getElementById('across').addEventListener('change', (event) => setAxis('x', Number(event.target.value)));
document.getElementById('up').addEventListener('change', (event) => setAxis('y', Number(event.target.value)));
document.querySelectorAll('input[name=when]').forEach((input) => {
  input.addEventListener('change', () => setWhen(input.value === 'after' ? 1 : 0));
});
document.querySelectorAll('input[name=colour]').forEach((input) => {
  input.addEventListener('change', () => {
    state.by = input.value;
    state.hidden.clear();
    hide();
    fillLegend();
    draw();
  });
});
document.getElementById('zoom-in').addEventListener('click', () => lookCloser(1 / 1.4));
document.getElementById('zoom-out').addEventListener('click', () => lookCloser(1.4));
document.getElementById('zoom-reset').addEventListener('click', () => lookCloser(0));

function refresh() {
  readColours();
  fillLegend();
  draw();
}

const root = document.documentElement;
root.dataset.script = '';
// A browser may bring back what was chosen before the page was left.
document.querySelectorAll('input[name=when], input[name=colour]').forEach((input) => { input.checked = input.defaultChecked; });
document.querySelectorAll('#across, #up').forEach((select) => { select.value = String(data.first[select.id === 'up' ? 1 : 0]); });
refresh();
for (const query of ['(prefers-color-scheme: dark)', 'print']) matchMedia(query).addEventListener('change', refresh);
new ResizeObserver(() => { hide(); draw(); }).observe(canvas);
addEventListener('beforeprint', () => {
  root.dataset.printing = '';
  document.querySelectorAll('details').forEach((one) => { one.open = true; });
  refresh();
});
addEventListener('afterprint', () => { delete root.dataset.printing; refresh(); });

/** For tests and the curious: where a row is on the canvas, in pixels, and what is shown. */
window.unspurReport = {
  rows,
  position: (row) => position(row),
  group: (row) => group[row],
  shown: (row) => visible(row) && inside(...position(row)),
  state: () => ({ x: state.x, y: state.y, when: state.when, share: state.share, seen: [...state.seen], at: state.at }),
};

// Buttons that copy the command and the snippet.
const copied = document.getElementById('copied');

function select(element) {
  const range = document.createRange();
  range.selectNodeContents(element);
  const selection = getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
}

document.querySelectorAll('.copy').forEach((button) => {
  button.addEventListener('click', async () => {
    const source = document.getElementById(button.dataset.copies);
    let said = 'Copied.';
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = 'Copied';
    } catch {
      select(source);
      said = 'The text is selected; copy it with your keyboard.';
      button.textContent = 'Selected';
    }
    copied.textContent = said;
    setTimeout(() => { button.textContent = 'Copy'; copied.textContent = ''; }, 2500);
  });
});
