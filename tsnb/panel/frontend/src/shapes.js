// A trial's shape, beside its colour: what tells it from others without colours. Seven shapes and eight colours make
// 56 pairs before one comes again.

import { svgNode } from "./dom.js";

/** Each in a box from -5 to 5. */
const PATHS = [
  "M-4.2 0A4.2 4.2 0 1 0 4.2 0A4.2 4.2 0 1 0 -4.2 0Z", // a circle
  "M-3.8 -3.8H3.8V3.8H-3.8Z", // a square
  "M0 -4.6L4.8 3.8H-4.8Z", // a triangle
  "M0 -5L5 0L0 5L-5 0Z", // a diamond
  "M0 4.6L4.8 -3.8H-4.8Z", // one upside down
  "M-1.7 -4.6H1.7V-1.7H4.6V1.7H1.7V4.6H-1.7V1.7H-4.6V-1.7H-1.7Z", // a plus
  "M-4.5 -2.3L-2.3 -4.5L0 -2.2L2.3 -4.5L4.5 -2.3L2.2 0L4.5 2.3L2.3 4.5L0 2.2L-2.3 4.5L-4.5 2.3L-2.2 0Z", // a cross
];

export const shapeOf = (lane) => lane % PATHS.length;

let paths;

/** Fill a lane's shape at a place of a canvas, `size` px wide. */
export function paintShape(ctx, lane, x, y, size) {
  paths ??= PATHS.map((path) => new Path2D(path));
  ctx.save();
  ctx.translate(x, y);
  ctx.scale(size / 10, size / 10);
  ctx.fill(paths[shapeOf(lane)]);
  ctx.restore();
}

const ENDS = { failed: "M-4 -4L4 4M4 -4L-4 4", crashed: "M-4 -4L4 4M4 -4L-4 4", stopped: "M-4 -4H4V4H-4Z", interrupted: "M-4 -4H4V4H-4Z", pruned: "M-4.6 0A4.6 4.6 0 1 0 4.6 0A4.6 4.6 0 1 0 -4.6 0ZM-3.2 3.2L3.2 -3.2" };
let endPaths;

/** Paint at a place of a canvas how a trial ended, in the colour of the strokes; false: as one that is done, or that goes on. */
export function paintEnd(ctx, end, x, y, size) {
  endPaths ??= Object.fromEntries(Object.entries(ENDS).map(([word, path]) => [word, new Path2D(path)]));
  if (!endPaths[end]) return false;
  ctx.save();
  ctx.translate(x, y);
  ctx.scale(size / 10, size / 10);
  ctx.lineWidth = 2.4;
  ctx.stroke(endPaths[end]);
  ctx.restore();
  return true;
}

/** The shape as an element, in the trial's colour (--tsnb-lane of what it stands in). */
export const shape = (lane) => svgNode("svg", { class: "tsnb-shape", viewBox: "-5 -5 10 10", "aria-hidden": "true" }, svgNode("path", { d: PATHS[shapeOf(lane)] }));
