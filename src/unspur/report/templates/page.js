// The scatter of rows along two directions, and buttons that copy. Read into one function of its own.
const data = JSON.parse(document.getElementById('data').textContent);
const bytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
const words = (text) => new Uint16Array(bytes(text).buffer);  // little-endian, as every browser's machine is
const rows = data.rows;
const group = words(data.group);
const answers = bytes(data.right);
const packed = [words(data.before), words(data.after)];
const UNKNOWN = 65535;

/** Score of a row along an axis; `when` is 0 (before) or 1 (after). */
const score = (when, axis, row) => data.low[axis] + packed[when][axis * rows + row] / 65535 * (data.high[axis] - data.low[axis]);
const isRight = (when, row) => Boolean(answers[row] & (when ? 2 : 1));
const groupName = (row) => (group[row] === UNKNOWN ? 'concept not known' : data.groups[group[row]].name);
const figure = (value) => (value === null ? '–' : String(Number(value.toPrecision(3))).replaceAll('-', '−'));

const canvas = document.getElementById('plane');
const ink = canvas.getContext('2d');
const size = { width: 0, height: 0, left: 60, right: 60, top: 12, bottom: 44 };
const state = { x: data.first[0], y: data.first[1], when: 0, by: 'group', hidden: new Set(), seen: null, at: -1 };
let colours = {};

const inner = () => ({ width: size.width - size.left - size.right, height: size.height - size.top - size.bottom });

/** Range of an axis, before and after, with a little room. */
function range(axis) {
  const [low, high] = [data.low[axis], data.high[axis]];
  const room = 0.05 * (high - low) || 1;
  return [low - room, high + room];
}

function toScreen(x, y) {
  const [left, right, bottom, top] = state.seen;
  const { width, height } = inner();
  return [size.left + (x - left) / (right - left) * width, size.top + (top - y) / (top - bottom) * height];
}

function position(row) {
  return toScreen(score(state.when, state.x, row), score(state.when, state.y, row));
}

function inside(px, py) {
  const { width, height } = inner();
  return px >= size.left - 1 && px <= size.left + width + 1 && py >= size.top - 1 && py <= size.top + height + 1;
}

/** What a row is drawn as: number of its group, or 0 for right and 1 for wrong. */
const kindOf = (row) => (state.by === 'group' ? group[row] : isRight(state.when, row) ? 0 : 1);
const shown = (row) => !state.hidden.has(kindOf(row)) && inside(...position(row));

function look(kind) {
  if (state.by === 'right') return kind ? [colours.wrong, data.shapes.cross] : [colours.right, data.shapes.circle];
  return kind === UNKNOWN ? [colours.line, data.shapes.circle] : [colours.group[kind], data.groups[kind].path];
}

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const named = (name) => style.getPropertyValue(`--${name}`).trim();
  colours = Object.fromEntries(['ground', 'ink', 'quiet', 'rule', 'line', 'wrong', 'right'].map((name) => [name, named(name)]));
  colours.group = data.groups.map((_, k) => named(`g${k}`));
}

function ticks(low, high) {
  const rough = (high - low) / 6;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((value) => value >= rough);
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) found.push(k * step);
  return found;
}

function stroke(points, colour, width, dash = []) {
  ink.beginPath();
  points.forEach((point, k) => (k ? ink.lineTo(...point) : ink.moveTo(...point)));
  [ink.strokeStyle, ink.lineWidth] = [colour, width];
  ink.setLineDash(dash);
  ink.stroke();
  ink.setLineDash([]);
}

function drawFrame() {
  const { width, height } = inner();
  const [left, right, bottom, top] = state.seen;
  ink.font = `12px ${getComputedStyle(canvas).fontFamily}`;
  ink.fillStyle = colours.quiet;
  ink.textAlign = 'center';
  for (const x of ticks(left, right)) {
    const [px] = toScreen(x, bottom);
    stroke([[px, size.top], [px, size.top + height]], x ? colours.rule : colours.line, 1);
    ink.fillText(figure(x), px, size.top + height + 17);
  }
  ink.fillText(data.axes[state.x].name, size.left + width / 2, size.top + height + 36, width);
  ink.textAlign = 'right';
  for (const y of ticks(bottom, top)) {
    const [, py] = toScreen(left, y);
    stroke([[size.left, py], [size.left + width, py]], y ? colours.rule : colours.line, 1);
    ink.fillText(figure(y), size.left - 7, py + 4);
  }
  ink.save();
  ink.translate(14, size.top + height / 2);
  ink.rotate(-Math.PI / 2);
  ink.textAlign = 'center';
  ink.fillText(data.axes[state.y].name, 0, 0, height);
  ink.restore();
}

/** How the rows of each kind are spread from bottom to top, beside the plane. */
function drawDensities() {
  const { width, height } = inner();
  const places = new Map();
  for (let row = 0; row < rows; row++) {
    if (!shown(row)) continue;
    if (!places.has(kindOf(row))) places.set(kindOf(row), []);
    places.get(kindOf(row)).push((position(row)[1] - size.top) / height);
  }
  for (const [kind, found] of places) {
    if (found.length < 10) continue;
    const bins = Math.round(Math.min(36, Math.max(8, 3 * Math.cbrt(found.length))));
    const count = new Float64Array(bins);
    for (const place of found) count[Math.max(0, Math.min(bins - 1, Math.floor(place * bins)))] += 1;
    const most = Math.max(...count);
    stroke(Array.from(count, (n, k) => [size.left + width + 4 + n / most * (size.right - 8), size.top + (k + 0.5) / bins * height]), look(kind)[0], 1.5);
  }
}

/** The decision boundary of the head: the line a·x + b·y + c = 0 in the plane of the two axes. */
function drawBoundary() {
  const boundary = data.boundary[state.when];
  const [i, j] = [state.x, state.y];
  if (!boundary || i === j) return;
  const [p, q, r] = [data.gram[i][i], data.gram[i][j], data.gram[j][j]];
  const [u, v] = [boundary.along[i], boundary.along[j]];
  const determinant = p * r - q * q;
  if (Math.abs(determinant) < 1e-9 * p * r) return;
  const [a, b, c] = [(u * r - v * q) / determinant, (v * p - u * q) / determinant, boundary.offset];
  const [left, right, bottom, top] = state.seen;
  const ends = Math.abs(b) * (top - bottom) > Math.abs(a) * (right - left)
    ? [[left, -(c + a * left) / b], [right, -(c + a * right) / b]]
    : [[-(c + b * bottom) / a, bottom], [-(c + b * top) / a, top]];
  if (!ends.flat().every(Number.isFinite)) return;
  stroke(ends.map((end) => toScreen(...end)), colours.ground, 5);
  stroke(ends.map((end) => toScreen(...end)), colours.ink, 1.6, [7, 5]);
}

function draw() {
  const scale = Math.max(1, window.devicePixelRatio || 1);
  const box = canvas.getBoundingClientRect();
  if (!box.width || !box.height) return;
  [size.width, size.height] = [box.width, box.height];
  [canvas.width, canvas.height] = [Math.round(box.width * scale), Math.round(box.height * scale)];
  state.seen ??= [...range(state.x), ...range(state.y)];
  const { width, height } = inner();
  ink.setTransform(scale, 0, 0, scale, 0, 0);
  drawFrame();
  drawDensities();
  ink.save();
  ink.beginPath();
  ink.rect(size.left, size.top, width, height);
  ink.clip();
  ink.globalAlpha = rows > 2000 ? 0.6 : 0.8;
  const radius = rows > 2000 ? 0.7 : 0.9;
  const shapes = new Map();
  for (let row = 0; row < rows; row++) {
    if (!shown(row)) continue;
    const kind = kindOf(row);
    if (!shapes.has(kind)) shapes.set(kind, [look(kind)[0], new Path2D(look(kind)[1])]);
    const [colour, path] = shapes.get(kind);
    const [px, py] = position(row);
    ink.setTransform(radius * scale, 0, 0, radius * scale, px * scale, py * scale);
    ink.fillStyle = colour;
    ink.fill(path);
  }
  ink.setTransform(scale, 0, 0, scale, 0, 0);
  ink.globalAlpha = 1;
  drawBoundary();
  ink.restore();
  if (state.at >= 0) {
    ink.beginPath();
    ink.arc(...position(state.at), 8, 0, 2 * Math.PI);
    [ink.strokeStyle, ink.lineWidth] = [colours.ink, 2];
    ink.stroke();
  }
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
  tipPicture.hidden = !sheet || row >= data.sheet.count;
  if (tipPicture.hidden || !sheet.complete) return;
  const { size: side, columns } = data.sheet;
  const pen = tipPicture.getContext('2d');
  pen.imageSmoothingEnabled = side > 48;
  pen.drawImage(sheet, row % columns * side, Math.floor(row / columns) * side, side, side, 0, 0, 128, 128);
}

function facts(row) {
  const axes = state.x === state.y ? [state.x] : [state.x, state.y];
  const answer = (when) => (isRight(when, row) ? 'right' : 'wrong');
  return [
    ...axes.map((axis) => [data.axes[axis].name, figure(score(state.when, axis, row))]),
    ['head, original rows', answer(0)], [`head, after ${data.method}`, answer(1)],
  ];
}

function show(row, aloud) {
  state.at = row;
  const text = data.texts ? data.texts[row] : '';
  tip.querySelector('.id').textContent = data.ids[row];
  tip.querySelector('.kind').textContent = groupName(row);
  tip.querySelector('.text').textContent = text;
  tip.querySelector('dl').replaceChildren(...facts(row).flatMap((pair) => pair.map((one, k) => {
    const item = document.createElement(k ? 'dd' : 'dt');
    item.textContent = one;
    return item;
  })));
  drawPicture(row);
  tip.hidden = false;
  const [px, py] = position(row);
  const box = tip.getBoundingClientRect();
  const within = (value, most) => Math.round(Math.min(Math.max(0, value), Math.max(0, most)));
  const x = px + 14 + box.width <= size.width ? px + 14 : px - 14 - box.width;
  const y = x >= 0 ? py - box.height / 2 : py + 14;
  tip.style.transform = `translate(${within(x, size.width - box.width)}px, ${within(y, size.height - box.height)}px)`;
  if (aloud) announce.textContent = [text, data.ids[row], groupName(row), ...facts(row).map((pair) => pair.join(': '))].filter(Boolean).join(', ');
  draw();
}

function hide() {
  state.at = -1;
  tip.hidden = true;
  announce.textContent = '';
  draw();
}

/** The shown row with the smallest cost, a function of its place and number; -1 where none is below `most`. */
function best(cost, most = Infinity) {
  let [found, least] = [-1, most];
  for (let row = 0; row < rows; row++) {
    if (!shown(row)) continue;
    const value = cost(...position(row), row);
    if (value < least) [found, least] = [row, value];
  }
  return found;
}

const nearest = (px, py, reach) => best((x, y) => Math.hypot(x - px, y - py), reach);

/** The next row in a direction (dx, dy on the canvas): near, and not far to the side. Rows on one spot in turn. */
function next(dx, dy) {
  const [px, py] = position(state.at);
  return best((x, y, row) => {
    if (row === state.at) return Infinity;
    const along = (x - px) * dx + (y - py) * dy;
    const aside = Math.abs((x - px) * dy) + Math.abs((y - py) * dx);
    if (Math.abs(along) < 0.01 && aside < 0.01) return (row - state.at) * (dx + dy) > 0 ? Math.abs(row - state.at) / rows - 1 : Infinity;
    return along < 0.01 ? Infinity : along + 3 * aside;
  });
}

/** Look closer (a factor below 1) or from farther away, around a place; at everything for 0. */
function zoom(factor, px = size.left + inner().width / 2, py = size.top + inner().height / 2) {
  const [left, right, bottom, top] = state.seen;
  const [x, y] = [left + (px - size.left) / inner().width * (right - left), top - (py - size.top) / inner().height * (top - bottom)];
  const whole = [...range(state.x), ...range(state.y)];
  const far = (right - left) * factor / (whole[1] - whole[0]);
  if (!factor) state.seen = whole;
  else if (far > 1 / 400 && far < 4) state.seen = [x + (left - x) * factor, x + (right - x) * factor, y + (bottom - y) * factor, y + (top - y) * factor];
  hide();
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const KEYS = { '+': 1 / 1.4, '=': 1 / 1.4, '-': 1.4, 0: 0 };
canvas.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  let row = -1;
  if (event.key in ARROWS) row = state.at < 0 ? nearest(size.width / 2, size.height / 2, Infinity) : next(...ARROWS[event.key]);
  else if (event.key === 'Home' || event.key === 'End') row = best((x) => (event.key === 'Home' ? x : -x));
  else if (event.key === 'Escape') hide();
  else if (event.key in KEYS) zoom(KEYS[event.key]);
  else return;
  event.preventDefault();
  if (row >= 0) show(row, true);
});

let drag = null;
canvas.addEventListener('pointerdown', (event) => {
  canvas.focus({ preventScroll: true });
  if (event.pointerType === 'mouse') drag = [event.offsetX, event.offsetY];
});
canvas.addEventListener('pointermove', (event) => {
  if (drag && event.buttons) {
    const [left, right, bottom, top] = state.seen;
    const x = (event.offsetX - drag[0]) / inner().width * (right - left);
    const y = (event.offsetY - drag[1]) / inner().height * (top - bottom);
    state.seen = [left - x, right - x, bottom + y, top + y];
    drag = [event.offsetX, event.offsetY];
    hide();
    return;
  }
  const row = nearest(event.offsetX, event.offsetY, event.pointerType === 'mouse' ? 12 : 24);
  if (row < 0 && state.at >= 0) hide(); else if (row >= 0 && row !== state.at) show(row, false);
});
canvas.addEventListener('pointerup', (event) => {
  drag = null;
  const row = event.pointerType === 'mouse' ? -1 : nearest(event.offsetX, event.offsetY, 24);
  if (row >= 0) show(row, false);
});
canvas.addEventListener('pointerleave', (event) => { if (event.pointerType === 'mouse') hide(); });
canvas.addEventListener('blur', hide);
canvas.addEventListener('wheel', (event) => {
  if (document.activeElement !== canvas && !event.ctrlKey) return;
  event.preventDefault();
  zoom(Math.exp(Math.max(-0.3, Math.min(0.3, event.deltaY * 0.0015))), event.offsetX, event.offsetY);
}, { passive: false });
[['zoom-in', 1 / 1.4], ['zoom-out', 1.4], ['zoom-reset', 0]].forEach(([id, factor]) => {
  document.getElementById(id).addEventListener('click', () => zoom(factor));
});

// The controls beside the plane, and what follows from outside: other colours, other sizes, paper.
function fillMeans() {
  [state.x, state.y].forEach((axis, k) => {
    document.querySelector(`#means [data-axis="${k}"]`).textContent = data.axes[axis].name;
    document.querySelectorAll('#means tbody tr').forEach((line, g) => {
      for (let when = 0; when < 2; when++) line.querySelectorAll('td')[2 * k + when].textContent = figure(data.means[when][g][axis]);
    });
  });
}

function fillLegend() {
  const kinds = state.by === 'right' ? [[0, 'right'], [1, 'wrong']] : data.groups.map((one, k) => [k, one.name]);
  if (state.by === 'group' && group.includes(UNKNOWN)) kinds.push([UNKNOWN, 'concept not known']);
  document.getElementById('legend').replaceChildren(...kinds.map(([kind, name]) => {
    const button = document.createElement('button');
    const mark = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    const path = mark.appendChild(document.createElementNS('http://www.w3.org/2000/svg', 'path'));
    button.type = 'button';
    button.setAttribute('aria-pressed', String(!state.hidden.has(kind)));
    for (const [key, value] of [['viewBox', '-6 -6 12 12'], ['class', 'mark'], ['aria-hidden', 'true']]) mark.setAttribute(key, value);
    path.setAttribute('d', look(kind)[1]);
    path.style.fill = look(kind)[0];
    button.append(mark, name);
    button.addEventListener('click', () => {
      if (!state.hidden.delete(kind)) state.hidden.add(kind);
      button.setAttribute('aria-pressed', String(!state.hidden.has(kind)));
      hide();
    });
    return button;
  }));
}

function set(changed) {
  Object.assign(state, changed);
  fillMeans();
  fillLegend();
  hide();
}

const root = document.documentElement;
const refresh = () => { readColours(); fillLegend(); draw(); };
for (const [id, axis] of [['across', 'x'], ['up', 'y']]) {
  const select = document.getElementById(id);
  select.value = String(state[axis]);  // a browser may bring back what was chosen before the page was left
  select.addEventListener('change', () => set({ [axis]: Number(select.value), seen: null }));
}
document.querySelectorAll('input[type=radio]').forEach((input) => {
  input.checked = input.defaultChecked;
  input.addEventListener('change', () => set(input.name === 'when' ? { when: Number(input.value) } : { by: input.value, hidden: new Set() }));
});
root.dataset.script = '';
refresh();
for (const query of ['(prefers-color-scheme: dark)', 'print']) matchMedia(query).addEventListener('change', refresh);
new ResizeObserver(hide).observe(canvas);
addEventListener('beforeprint', () => {
  root.dataset.printing = '';
  document.querySelectorAll('details').forEach((one) => { one.open = true; });
  refresh();
});
addEventListener('afterprint', () => { delete root.dataset.printing; refresh(); });

/** For tests and the curious: where a row is on the canvas, in pixels, and what is shown. */
window.unspurReport = { rows, position, group: (row) => group[row], shown, state: () => ({ ...state, seen: [...state.seen] }) };

document.querySelectorAll('.copy').forEach((button) => {
  button.addEventListener('click', async () => {
    const source = document.getElementById(button.dataset.copies);
    const copied = document.getElementById('copied');
    try {
      await navigator.clipboard.writeText(source.textContent);
      copied.textContent = 'Copied.';
    } catch {
      getSelection().selectAllChildren(source);
      copied.textContent = 'The text is selected; copy it with your keyboard.';
    }
    setTimeout(() => { copied.textContent = ''; }, 4000);
  });
});
