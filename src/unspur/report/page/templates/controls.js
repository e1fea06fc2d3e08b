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
