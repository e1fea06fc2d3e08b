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

/** Where the answers of a last layer change: the line a·x + b·y + c = 0 in the plane of the two axes, or null. */
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
