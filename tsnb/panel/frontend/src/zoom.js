// Where on a chart one looks: a drag marks a stretch of the x axis, or where it goes up or down a range of values.

const LEAST = 6; // px that are a drag, not a click

/** The range of values of what is drawn between two places; null: nothing is. */
export function within(curves, [low, high], log) {
  let bottom = Infinity, top = -Infinity;
  for (const { x, y } of curves) {
    for (let k = 0; k < x.length; k++) {
      if (x[k] < low || x[k] > high || !Number.isFinite(y[k]) || (log && y[k] <= 0)) continue;
      if (y[k] < bottom) bottom = y[k];
      if (y[k] > top) top = y[k];
    }
  }
  return bottom <= top ? [bottom, top] : null;
}

/** A range around a place by a factor: 0.5 is half as wide. */
export const around = ([low, high], at, by) => [at - (at - low) * by, at + (high - at) * by];

/** Which stretch a drag from one point to another marks: ["x" or "y", from, to] in px; null: it was a click. */
export function dragged([x, y], [toX, toY]) {
  const wide = Math.abs(toX - x), high = Math.abs(toY - y);
  if (Math.max(wide, high) < LEAST) return null;
  return wide >= high ? ["x", Math.min(x, toX), Math.max(x, toX)] : ["y", Math.min(y, toY), Math.max(y, toY)];
}
