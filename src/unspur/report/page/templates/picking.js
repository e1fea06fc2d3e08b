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
  return [...along, ['last layer, as they are', answerOf(0, row)], [`last layer, after ${data.method}`, answerOf(1, row)]];
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
