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

/** Whether the answer of the last layer is right for a row. */
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
