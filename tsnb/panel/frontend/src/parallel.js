// Parallel coordinates: one axis a parameter and the metric last, one line a trial, the best in colour.

import { attribute, make, put, style, svgNode as node } from "./dom.js";
import { labelsOf } from "./sweep.js";

const HEIGHT = 236, TOP = 26, BOTTOM = 14, LEFT = 48, RIGHT = 66;

export class Parallel {
  /** `light(lane)` is called with the trial that is pointed at, or null. */
  constructor(light) {
    this.light = light;
    this.note = make("span", "tsnb-soft");
    this.drawing = node("svg", { class: "tsnb-parallel", role: "img" });
    this.box = make("div", "tsnb-parallel-box", this.drawing);
    this.element = make("figure", "tsnb-learned", make("figcaption", "", make("b", "", "parameters"), " ", this.note), this.box);
    this.drawing.onpointerleave = () => light(null);
  }

  /** axes: as `axesOf` has them, the metric's last; lines: [{lane, name, colour or null}], the best last; lit: a lane or null. */
  draw({ axes, lines, lit, show, missing }) {
    const width = this.box.clientWidth;
    put(this.note, missing || "one line per trial, the best at the top right");
    const key = JSON.stringify([width, lit, lines, axes.map(({ at, ...axis }) => [axis, [...at]])]);
    if (key === this.drawn || width < 120) return;
    this.drawn = key;
    attribute(this.drawing, "viewBox", `0 0 ${width} ${HEIGHT}`);
    attribute(this.drawing, "height", HEIGHT);
    const tall = HEIGHT - TOP - BOTTOM, gap = (width - LEFT - RIGHT) / Math.max(1, axes.length - 1);
    const x = (k) => LEFT + k * gap, y = (part) => TOP + (1 - part) * tall;
    const paths = lines.map((line) => this.path(line, axes, x, y, lit));
    const marks = axes.flatMap((axis, k) => this.axis(axis, x(k), y, k === axes.length - 1 ? show : undefined, gap));
    this.drawing.replaceChildren(...paths, ...marks);
    const best = lines[lines.length - 1];
    attribute(this.drawing, "aria-label", `Parameters of ${lines.length} trials${best ? `; the best is ${best.name}` : ""}`);
  }

  path({ lane, name, colour }, axes, x, y, lit) {
    const points = axes.map(({ at }, k) => (at.has(lane) ? [x(k), y(at.get(lane))] : null)).filter(Boolean);
    const bend = ([a, b], k) => {
      if (!k) return `M${a.toFixed(1)} ${b.toFixed(1)}`;
      const [c, d] = points[k - 1], half = ((a + c) / 2).toFixed(1);
      return `C${half} ${d.toFixed(1)} ${half} ${b.toFixed(1)} ${a.toFixed(1)} ${b.toFixed(1)}`;
    };
    const path = node("path", { d: points.map(bend).join(""), class: lane === lit ? "tsnb-lit" : colour ? "tsnb-of-the-best" : "tsnb-one" }, node("title", {}, name));
    if (colour) style(path, "stroke", colour);
    path.onpointerenter = () => this.light(lane);
    return path;
  }

  axis(axis, x, y, show, gap) {
    const line = node("line", { x1: x, x2: x, y1: y(0), y2: y(1), class: "tsnb-axis" });
    const name = node("text", { x, y: 12, "text-anchor": "middle", class: "tsnb-axis-name" }, short(axis.name, gap));
    const texts = labelsOf(axis, show).map(([part, text]) => node("text", { x: show ? x + 6 : x - 5, y: y(part) + 3.5, "text-anchor": show ? "start" : "end" }, short(text, 60)));
    return [line, name, ...texts];
  }
}

const short = (text, px) => (text.length * 6.2 > px ? `${text.slice(0, Math.max(2, Math.floor(px / 6.2) - 1))}…` : text);
