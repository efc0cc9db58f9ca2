// One chart of learning curves on a canvas: lines with the raw values behind them, names at their ends, the values under
// the pointer or, with the arrow keys, under the cursor.

import { attribute, make, put, style } from "./dom.js";
import { FEW, across, calmExtent, extent, nearest, shortened, spread, stepOf, ticks } from "./learning.js";
import { labels } from "./marks.js";
import { paintEnd, paintShape, shape } from "./shapes.js";
import { mix } from "./theme.js";
import { around, dragged, within } from "./zoom.js";

const HEIGHT = 236;
const TOP = 8, BOTTOM = 22, LEFT = 46;
const SETS_HIGH = 34; // two rows of what was set, above the curves
const LABEL_GAP = 14;
const NEAR_SET = 7; // px
const SETS_TOLD = 3;
const SETS = 12; // lines where something was set
const SAID = 8; // values under the pointer
const TOLD_MS = 3000; // as often as the words for screen readers are renewed

/** draw() takes {title, unit, curves, lit, colours, way, log, show(value), tick(value, range), place(x), end(lane)}. */
export class Plot {
  /** `zoomed(range, kept)` is told which stretch of the x axis is to be seen, in all charts; null: all of it, and of all values
   * unless `kept`. */
  constructor(moved, zoomed = () => {}) {
    Object.assign(this, { moved, zoomed, zoom: null, yChosen: null, from: null, to: null });
    this.heading = make("b");
    this.note = make("span", "tsnb-soft");
    this.canvas = make("canvas");
    this.hover = make("div", "tsnb-hover tsnb-readout");
    this.hover.hidden = true;
    this.box = make("div", "tsnb-plot", this.canvas, this.hover);
    this.box.tabIndex = 0;
    attribute(this.box, "role", "img");
    this.box.onkeydown = (event) => this.key(event);
    this.box.onblur = () => this.moved(null);
    this.box.onpointermove = (event) => this.drags(event) || this.pointed(event.offsetX);
    this.box.onpointerdown = (event) => event.button === 0 && this.area && (this.from = [event.offsetX, event.offsetY]);
    this.box.onpointerup = () => this.dropped();
    this.box.onpointercancel = () => (this.from = this.to = null);
    this.box.ondblclick = () => this.whole();
    this.box.onpointerleave = () => this.moved(null);
    this.element = make("figure", "tsnb-learned", make("figcaption", "", this.heading, " ", this.note), this.box);
    this.at = null; // where the cursor is, on the x axis
  }

  draw(what, theme) {
    Object.assign(this, what, { theme });
    put(this.heading, what.title);
    put(this.note, what.unit);
    this.paint();
    this.tell();
  }

  /** Where what is drawn lies. Names have room at the right, as much as they need. */
  measure(ctx) {
    const width = this.box.clientWidth;
    ctx.font = this.theme.font;
    const names = this.named.map(({ name }) => ctx.measureText(this.short[name]).width);
    const right = Math.min(width * 0.3, 26 + Math.max(0, ...names));
    const all = [...this.curves, ...(this.formers || [])], x = extent(all.map((curve) => curve.x), false) || [0, 1];
    this.xs = this.zoom || across(x);
    const y = (this.zoom ? within(all, this.zoom, this.log) : calmExtent(all, this.log)) || [this.log ? 0.1 : 0, 1];
    this.ys = this.yChosen || (this.log ? [y[0] * 0.9, y[1] * 1.1] : padded(y));
    const top = this.setsShown().length ? SETS_HIGH : TOP;
    this.area = { left: LEFT, top, width: Math.max(10, width - LEFT - right), height: HEIGHT - top - BOTTOM };
    return width;
  }

  /** Mark what a drag goes over; whether it is one. */
  drags({ offsetX, offsetY, buttons }) {
    if (!this.from) return false;
    this.to = [offsetX, offsetY];
    if (!buttons) return this.dropped(), false;
    this.paint();
    return true;
  }

  dropped() {
    const marked = this.from && this.to && dragged(this.from, this.to);
    this.from = this.to = null;
    if (!marked) return;
    const [axis, from, to] = marked;
    if (axis === "y") {
      this.yChosen = [this.ofY(to), this.ofY(from)];
      this.zoomed(this.zoom, true);
    } else this.zoomed([this.ofX(from), this.ofX(to)].map((v) => Math.min(this.xs[1], Math.max(this.xs[0], v))));
    this.paint();
  }

  /** Show all of it again. */
  whole() {
    this.yChosen = null;
    this.zoomed(null);
    this.paint();
  }

  ofX(px) {
    return this.xs[0] + ((px - this.area.left) / this.area.width) * (this.xs[1] - this.xs[0]);
  }

  ofY(px) {
    const share = 1 - (px - this.area.top) / this.area.height, [low, high] = this.ys;
    return this.log ? low * (high / low) ** share : low + share * (high - low);
  }

  /** What a drag has marked so far. */
  marking(ctx) {
    const marked = this.from && this.to && dragged(this.from, this.to);
    if (!marked) return;
    const { left, top, width, height } = this.area, [axis, from, to] = marked;
    ctx.globalAlpha = 0.14;
    ctx.fillStyle = this.theme.text;
    if (axis === "x") ctx.fillRect(from, top, to - from, height);
    else ctx.fillRect(left, from, width, to - from);
    ctx.globalAlpha = 1;
  }

  toX(value) {
    return this.area.left + ((value - this.xs[0]) / (this.xs[1] - this.xs[0])) * this.area.width;
  }

  toY(value) {
    const of = this.log ? Math.log : (v) => v, [low, high] = this.ys.map(of);
    return this.area.top + (1 - (of(value) - low) / (high - low)) * this.area.height;
  }

  paint() {
    const dpr = devicePixelRatio || 1, ctx = this.canvas.getContext("2d");
    // those that are named: in colour, or the one that is pointed at
    this.named = this.curves.filter(({ lane }) => this.colours.has(lane) || lane === this.lit);
    this.short = shortened(this.among || this.named.map(({ name }) => name));
    const width = this.measure(ctx);
    if (width < 120) return;
    if (this.canvas.width !== Math.round(width * dpr) || this.canvas.height !== HEIGHT * dpr) {
      Object.assign(this.canvas, { width: Math.round(width * dpr), height: HEIGHT * dpr });
      style(this.canvas, "width", `${width}px`);
      style(this.canvas, "height", `${HEIGHT}px`);
    }
    ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
    ctx.clearRect(0, 0, width, HEIGHT);
    ctx.font = this.theme.font;
    this.axes(ctx);
    this.drawSets(ctx);
    ctx.save();
    ctx.beginPath();
    ctx.rect(this.area.left - 4, this.area.top - 4, this.area.width + 10, this.area.height + 8);
    ctx.clip();
    for (const curve of this.formers || []) this.former(ctx, curve);
    for (const named of [false, true]) for (const curve of this.curves) if (this.named.includes(curve) === named) this.line(ctx, curve, named);
    ctx.restore();
    this.names(ctx);
    if (this.at !== null) this.cross(ctx);
    this.marking(ctx);
  }

  axes(ctx) {
    const { left, top, width, height } = this.area, { line, soft } = this.theme;
    ctx.strokeStyle = line;
    ctx.fillStyle = soft;
    ctx.lineWidth = 1;
    ctx.textBaseline = "middle";
    ctx.textAlign = "right";
    const heights = ticks(...this.ys, 5, this.log), step = stepOf(heights, this.log);
    for (const value of heights) {
      const y = Math.round(this.toY(value)) + 0.5;
      ctx.beginPath();
      ctx.moveTo(left, y);
      ctx.lineTo(left + width, y);
      ctx.stroke();
      ctx.fillText(this.tick(value, this.ys, step), left - 6, y);
    }
    ctx.textBaseline = "alphabetic";
    ctx.textAlign = "center";
    const shown = ticks(...this.xs, Math.max(2, Math.floor(width / 90)));
    let before;
    for (const value of shown) {
      const text = this.place(value), wide = ctx.measureText(text).width / 2;
      if (text !== before) ctx.fillText(text, Math.min(Math.max(this.toX(value), left + wide - 8), left + width), HEIGHT - 6); // halves of a batch have no words
      before = text;
    }
  }

  setsShown() {
    return (this.sets || []).filter(({ lane, x }) => this.named.some((curve) => curve.lane === lane) && x >= this.xs[0] && x <= this.xs[1]).slice(-SETS);
  }

  /** Dotted lines where live values were set, in the trial's colour; above them what was set, of the newest. */
  drawSets(ctx) {
    const { left, top, width, height } = this.area, { soft, text } = this.theme, shown = this.setsShown();
    const at = shown.map(({ x }) => this.toX(x)), wide = shown.map(({ text: words }) => ctx.measureText(words).width + 20);
    ctx.setLineDash([2, 3]);
    shown.forEach(({ lane }, k) => {
      ctx.strokeStyle = this.colours.get(lane) || soft;
      ctx.lineWidth = 1.2;
      ctx.beginPath();
      ctx.moveTo(at[k], 2);
      ctx.lineTo(at[k], top + height);
      ctx.stroke();
    });
    ctx.setLineDash([]);
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    for (const { k, left: from, row } of labels(at, wide, left, left + width, 2)) {
      const y = 7 + 16 * row;
      ctx.fillStyle = this.colours.get(shown[k].lane) || soft;
      paintShape(ctx, shown[k].lane, from + 6, y, 8);
      ctx.fillStyle = text;
      ctx.fillText(shown[k].text, from + 14, y);
    }
  }

  line(ctx, { lane, x, raw, y, low, high }, named) {
    const { soft, ground } = this.theme, colour = this.colours.get(lane) || (lane === this.lit ? soft : mix(soft, ground, 0.45));
    const faded = this.lit !== null && this.lit !== lane;
    ctx.lineJoin = "round";
    if (named && this.colours.size <= 8 && low && high) {
      ctx.globalAlpha = faded ? 0.05 : 0.15;
      this.band(ctx, x, low, high, colour);
    }
    if (named && raw !== y && this.colours.size <= 8) {
      ctx.globalAlpha = faded ? 0.1 : 0.3;
      this.stroke(ctx, x, raw, colour, 1);
    }
    ctx.globalAlpha = faded ? 0.35 : named ? 1 : 0.7;
    this.stroke(ctx, x, y, colour, lane === this.lit ? 2.6 : named ? 1.8 : 1);
    if (named && x.length <= FEW) {
      ctx.fillStyle = colour;
      x.forEach((at, k) => this.drawn(y[k]) && paintShape(ctx, lane, this.toX(at), this.toY(y[k]), 6));
    }
    ctx.globalAlpha = 1;
  }

  /** The run before, faint and dashed: it has no name at its end and is not read under the pointer. */
  former(ctx, { lane, x, y }) {
    const { soft, ground } = this.theme, colour = this.colours.get(lane) || mix(soft, ground, 0.45);
    ctx.setLineDash([5, 4]);
    ctx.globalAlpha = this.lit !== null && this.lit !== lane ? 0.15 : 0.5;
    this.stroke(ctx, x, y, colour, 1.3);
    ctx.globalAlpha = 1;
    ctx.setLineDash([]);
  }

  drawn(value) {
    return Number.isFinite(value) && !(this.log && value <= 0);
  }

  stroke(ctx, x, y, colour, width) {
    ctx.strokeStyle = colour;
    ctx.lineWidth = width;
    ctx.beginPath();
    let open = false;
    for (let k = 0; k < x.length; k++) {
      if (!this.drawn(y[k])) {
        open = false; // what is no number is a gap
        continue;
      }
      ctx[open ? "lineTo" : "moveTo"](this.toX(x[k]), this.toY(y[k]));
      open = true;
    }
    ctx.stroke();
  }

  /** From the lowest to the highest value of each stretch. */
  band(ctx, x, low, high, colour) {
    ctx.fillStyle = colour;
    for (let from = 0, to; from < x.length; from = to + 1) {
      for (to = from; to < x.length && this.drawn(low[to]) && this.drawn(high[to]); ) to++;
      if (to - from < 2) continue;
      ctx.beginPath();
      for (let k = from; k < to; k++) ctx.lineTo(this.toX(x[k]), this.toY(high[k]));
      for (let k = to - 1; k >= from; k--) ctx.lineTo(this.toX(x[k]), this.toY(low[k]));
      ctx.fill();
    }
  }

  /** Each trial's shape at its end, and its name beside that. */
  names(ctx) {
    const { text, ground, soft } = this.theme, { left, top, width, height } = this.area;
    const ends = this.named.map((curve) => [curve, curve.y.findLastIndex((v) => this.drawn(v))]).filter(([, k]) => k >= 0);
    const inside = (y) => Math.min(Math.max(y, top), top + height);
    const at = ends.map(([curve, k]) => [this.toX(curve.x[k]), inside(this.toY(curve.y[k]))]);
    const heights = spread(at.map(([, y]) => y), LABEL_GAP, top + 4, top + height - 2);
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ends.forEach(([{ lane, name }], k) => {
      const [x, y] = at[k], edge = left + width + 14;
      ctx.fillStyle = this.colours.get(lane) || soft;
      ctx.strokeStyle = ground;
      ctx.globalAlpha = this.lit !== null && this.lit !== lane ? 0.5 : 1;
      ctx.strokeStyle = ctx.fillStyle;
      if (!paintEnd(ctx, this.endOf ? this.endOf(lane) : "", x, y, 10)) paintShape(ctx, lane, x, y, 9);
      ctx.strokeStyle = soft;
      ctx.lineWidth = 0.7;
      const early = x + 6 < left + width; // it has ended: its name is led to where
      ctx.setLineDash(early ? [1, 3] : []);
      ctx.beginPath();
      ctx.moveTo(x + 6, y);
      if (early) ctx.lineTo(left + width + 2, y);
      ctx.lineTo(edge - 3, heights[k]);
      if (early || Math.abs(heights[k] - y) > 3) ctx.stroke();
      ctx.setLineDash([]);
      ctx.fillStyle = text;
      ctx.font = lane === this.lit ? `600 ${this.theme.font}` : this.theme.font;
      ctx.fillText(`${this.short[name]}${this.end(lane)}`, edge, heights[k]);
      ctx.globalAlpha = 1;
    });
  }

  cross(ctx) {
    const { top, height, left, width } = this.area, x = this.toX(this.at), { text, ground } = this.theme;
    if (x < left - 1 || x > left + width + 1) return;
    ctx.strokeStyle = text;
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(Math.round(x) + 0.5, top);
    ctx.lineTo(Math.round(x) + 0.5, top + height);
    ctx.stroke();
    const label = this.place(this.at, true), wide = ctx.measureText(label).width + 12;
    ctx.fillStyle = text;
    ctx.fillRect(x - wide / 2, HEIGHT - BOTTOM + 3, wide, 16);
    ctx.fillStyle = ground;
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    ctx.fillText(label, x, HEIGHT - BOTTOM + 11.5);
    for (const { curve, k } of this.under()) {
      ctx.fillStyle = this.colours.get(curve.lane) || this.theme.soft;
      if (this.named.includes(curve)) paintShape(ctx, curve.lane, x, this.toY(curve.y[k]), 10);
    }
  }

  /** The curves at the cursor with the point of each that is nearest, the best first. */
  under() {
    const near = (this.xs[1] - this.xs[0]) / 20, found = [];
    for (const curve of this.curves) {
      const k = this.at === null ? -1 : nearest(curve.x, this.at);
      if (k < 0 || !Number.isFinite(curve.y[k])) continue;
      const inside = this.at >= curve.x[0] - near && this.at <= curve.x[curve.x.length - 1] + near;
      if (inside && (Math.abs(curve.x[k] - this.at) <= near || curve.x.length <= FEW)) found.push({ curve, k });
    }
    return found.sort((a, b) => (this.way || -1) * (b.curve.y[b.k] - a.curve.y[a.k]));
  }

  pointed(offset) {
    if (!this.area || !this.curves.length) return;
    const share = (offset - this.area.left) / this.area.width;
    this.moved(share < -0.02 || share > 1.02 ? null : this.xs[0] + share * (this.xs[1] - this.xs[0]), this);
  }

  /** Plus and minus zoom at the cursor, Escape shows all again. Left and right move the cursor by a hundredth, with Shift by a tenth; Home and End to the ends; Escape takes it away. */
  key(event) {
    if (!this.area || !this.curves.length) return;
    const [low, high] = this.xs, step = ((high - low) / 100) * (event.shiftKey ? 10 : 1), from = this.at ?? high;
    const to = { ArrowLeft: from - step, ArrowRight: from + step, Home: low, End: high }[event.key];
    if (event.key === "Escape" && (this.zoom || this.yChosen)) (event.stopPropagation(), this.whole());
    else if (event.key === "Escape") this.moved(null);
    const by = { "+": 0.5, "-": 2 }[event.key];
    if (by) this.zoomed(around(this.xs, this.at ?? (low + high) / 2, by));
    if (to === undefined) return;
    event.preventDefault();
    this.moved(Math.min(high, Math.max(low, to)), this);
    this.tell(true);
  }

  /** Show the cursor at a place; the values there, if the pointer is at this chart. */
  point(at, here) {
    this.at = at;
    if (!this.theme) return;
    this.paint();
    const found = here && at !== null ? this.under() : [];
    this.hover.hidden = !found.length;
    if (!found.length) return;
    const line = ({ curve, k }, n) => {
      const swatch = make("span", "tsnb-mark", shape(curve.lane));
      style(swatch, "--tsnb-lane", this.colours.get(curve.lane) || this.theme.soft);
      const best = this.way && n === 0 && (!this.paired || this.way * curve.y[k] > 0) ? " ★" : "";
      return make("div", "", swatch, make("span", "tsnb-trial", curve.name), make("b", "", this.show(curve.y[k]) + best));
    };
    const more = found.length > SAID ? [make("div", "tsnb-soft", `and ${found.length - SAID} more`)] : [];
    this.hover.replaceChildren(make("div", "tsnb-soft", this.place(at, true, true)), ...found.slice(0, SAID).map(line), ...more, ...this.setsNear(at));
    const x = this.toX(at), left = x < this.box.clientWidth / 2;
    style(this.hover, "left", left ? `${x + 12}px` : "auto");
    style(this.hover, "right", left ? "auto" : `${this.box.clientWidth - x + 12}px`);
  }

  /** What was set near a place, for what is shown there. */
  setsNear(at) {
    const near = (this.sets || []).filter(({ x }) => Math.abs(this.toX(x) - this.toX(at)) < NEAR_SET);
    return near.slice(-SETS_TOLD).map(({ lane, text }) => make("div", "tsnb-told", `${this.curves.find((curve) => curve.lane === lane)?.name ?? ""}: ${text}`));
  }

  /** What a screen reader says of it: the values at the cursor, or the last ones. */
  tell(now) {
    const ms = Date.now();
    if (!now && ms - (this.toldMs || 0) < TOLD_MS) return;
    this.toldMs = ms;
    const last = this.curves.map((curve) => ({ curve, k: curve.y.length - 1 }));
    const words = (this.at === null ? last : this.under()).slice(0, SAID).map(({ curve, k }) => `${curve.name} ${this.show(curve.y[k])}`);
    const where = this.at === null ? "now" : this.place(this.at, true, true);
    attribute(this.box, "aria-label", `${this.title} ${this.unit}; ${where}: ${words.join(", ") || "nothing yet"}${this.tellSets()}`);
  }

  tellSets() {
    const told = (this.sets || []).slice(-SETS_TOLD).map(({ lane, x, text }) => `${this.curves.find((curve) => curve.lane === lane)?.name ?? ""} ${text} at ${this.place(x, true, true)}`);
    return told.length ? `; set: ${told.join(", ")}` : "";
  }
}

/** A range with air above and below, which ends at 0 where it is near that. */
function padded([low, high]) {
  const air = (high - low || Math.abs(high) || 1) * 0.06;
  return [low >= 0 && low < high * 0.25 ? 0 : low - air, high + air];
}
