// Icons of states and actions: small paths in a box of 12 by 12, drawn in the colour of their text.

import { svgNode } from "./dom.js";

const LINE = "fill:none;stroke:currentColor;stroke-width:1.5;stroke-linecap:round;stroke-linejoin:round";
const FULL = "fill:currentColor";

const ICONS = {
  "sets the pace": [LINE, "M2.5 11V1.5H9.5L8 4L9.5 6.5H2.5"], // a flag
  "held back": [LINE, "M1 6H8M5.5 3.5L8 6L5.5 8.5M10.5 2V10"], // an arrow at a wall
  waiting: [LINE, "M6 1.2A4.8 4.8 0 1 0 6 10.8A4.8 4.8 0 1 0 6 1.2ZM6 3.5V6L7.8 7.2"], // a clock
  streaming: [FULL, "M3 1.5L10.5 6L3 10.5Z"],
  skipping: [FULL, "M1.5 2L6 6L1.5 10ZM6 2L10.5 6L6 10Z"],
  joining: [FULL, "M1 5H3.4V7.4H1ZM4.8 5H7.2V7.4H4.8ZM8.6 5H11V7.4H8.6Z"],
  "between epochs": [FULL, "M1 5H3.4V7.4H1ZM4.8 5H7.2V7.4H4.8ZM8.6 5H11V7.4H8.6Z"],
  "awaits ranks": [LINE, "M6 1.2A4.8 4.8 0 1 0 6 10.8A4.8 4.8 0 1 0 6 1.2ZM6 3.5V6L7.8 7.2"],
  "awaits turn": [LINE, "M6 1.2A4.8 4.8 0 1 0 6 10.8A4.8 4.8 0 1 0 6 1.2ZM6 3.5V6L7.8 7.2"],
  queued: [LINE, "M6 1.2A4.8 4.8 0 1 0 6 10.8A4.8 4.8 0 1 0 6 1.2ZM6 3.5V6L7.8 7.2"],
  starting: [FULL, "M1 5H3.4V7.4H1ZM4.8 5H7.2V7.4H4.8ZM8.6 5H11V7.4H8.6Z"],
  "timed out": [FULL, "M2.5 1.5H5V10.5H2.5ZM7 1.5H9.5V10.5H7Z"],
  paused: [FULL, "M2.5 1.5H5V10.5H2.5ZM7 1.5H9.5V10.5H7Z"],
  done: [LINE, "M1.5 6.5L4.8 9.8L10.5 2.5"],
  failed: [LINE, "M2 2L10 10M10 2L2 10"],
  crashed: [LINE, "M2 2L10 10M10 2L2 10"],
  stopped: [FULL, "M2 2H10V10H2Z"],
  interrupted: [LINE, "M2.5 9.5L9.5 9.5M6 8L6 1.5M3.5 4L6 1.5L8.5 4"],
  pruned: [LINE, "M6 1.2A4.8 4.8 0 1 0 6 10.8A4.8 4.8 0 1 0 6 1.2ZM2.8 9.2L9.2 2.8"], // out of the race
  again: [LINE, "M9.9 4.2A4.3 4.3 0 1 0 10.3 6.8M10.3 1.6V4.4H7.5"],
  clone: [LINE, "M3 3.5V8.5M3 6.5C3 5 9 6.5 9 4M3 1A1.2 1.2 0 1 0 3 3.4A1.2 1.2 0 1 0 3 1ZM3 8.6A1.2 1.2 0 1 0 3 11A1.2 1.2 0 1 0 3 8.6ZM9 1.6A1.2 1.2 0 1 0 9 4A1.2 1.2 0 1 0 9 1.6Z"],
  left: [LINE, "M4.5 2H2V10H4.5M5 6H10.5M8.2 3.7L10.5 6L8.2 8.3"],
};

/** An icon of no particular state yet. */
export const icon = () => svgNode("svg", { class: "tsnb-icon", viewBox: "0 0 12 12", "aria-hidden": "true" }, svgNode("path"));

/** Let it show a state; one without a picture leaves its place empty. Returns it. */
export function showIcon(svg, state) {
  if (svg.dataset.state === state) return svg;
  svg.dataset.state = state;
  const [style, path] = ICONS[state] || ["", ""];
  svg.firstChild.setAttribute("style", style);
  svg.firstChild.setAttribute("d", path);
  return svg;
}
