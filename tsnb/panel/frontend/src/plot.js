// The one engine of charts: lines or areas on a canvas, with marks, names at their ends, and the values under the pointer or, with
// the arrow keys, under the cursor. Large: learning curves, which can be zoomed. Small: what is measured over the last minutes.

import { attribute, make, put, style } from "./dom.js";
import { FEW, across, calmExtent, extent, nearest, padded, shortened, spread } from "./learning.js";
import { labels } from "./marks.js";
import { paintEnd, paintShape, shape } from "./shapes.js";
import { mix } from "./theme.js";
import { around, dragged, within } from "./zoom.js";

const LARGE = { figure: "tsnb-learned", box: "tsnb-plot", top: 8, bottom: 22, left: 46, steps: 100, apart: 90 };
const SMALL = { figure: "tsnb-chart", box: "tsnb-canvas", top: 6, bottom: 5, left: 40, right: 14, steps: 240 };
const LEAST = 80; // px of width
const MARKED = 34; // px: two rows of what marks are of, above the curves
const LABEL_GAP = 14;
const MOST_NAMED = 0.36; // of a chart's width that names may take
const NEAR = 7; // px from a mark within which the pointer is at it
const TOLD = 3; // marks that are told in words
const MARKS = 24; // marks that have a line
const SAID = 8; // values under the pointer
const MANY = 8; // curves: more have no pale values behind them, and areas no edges
const FAINT = 0.3; // of a line or area while another stands out
const TOLD_MS = 3000; // as often as the words for screen readers are renewed

/**
 * draw() takes {title, unit, curves, colours, marks, up(low, high, log), across(low, high, most), place(x), show(value)}, and where there
 * are such: {calls (short names), lit, way, log, formers, ranged (the curves that set the range), endOf(lane), last(lane), paired, zoom}; small ones {span, range, times, now, stacked, step}. A curve is {lane, name, x,
 * y}, which is drawn, and has perhaps `own`, which is said instead of `y`, `raw`, `low` and `high`, `dashed`, and `dots`: no line, a mark a point. `up` and `across` give
 * what stands beside an axis: [[value, text], ...]. A mark is {x, text, whole}, and has perhaps a lane and `faint`.
 */
export class Plot {
  /** `moved(at, from)`: the pointer is there, or at null. `zoomed(range, kept)` is told which stretch of the x axis is to be seen, in
   * all charts; null: all of it, and of all values unless `kept`. */
  constructor(moved, { zoomed = () => {}, small = false } = {}) {
    Object.assign(this, { moved, zoomed, small, size: small ? SMALL : LARGE, zoom: null, yChosen: null, from: null, to: null, lit: null });
    this.heading = make("b");
    this.note = make("span", "tsnb-soft");
    this.canvas = make("canvas");
    this.hover = make("div", "tsnb-hover tsnb-readout");
    this.hover.hidden = true;
    this.box = make("div", this.size.box, this.canvas, this.hover);
    this.box.tabIndex = 0;
    attribute(this.box, "role", "img");
    this.box.onkeydown = (event) => this.key(event);
    this.box.onblur = () => this.moved(null);
    this.box.onpointermove = (event) => this.drags(event) || this.pointed(event.offsetX);
    this.box.onpointerleave = () => this.moved(null);
    if (!small) this.draggable();
    this.below = small ? ["", "", ""].map(() => make("span")) : [];
    this.element = make("figure", this.size.figure, make("figcaption", "", this.heading, " ", this.note), this.box);
    if (small) this.element.append(make("div", "tsnb-times tsnb-soft", ...this.below));
    this.at = null; // where the cursor is, on the x axis
  }

  draggable() {
    this.box.onpointerdown = (event) => event.button === 0 && this.area && (this.from = [event.offsetX, event.offsetY]);
    this.box.onpointerup = () => this.dropped();
    this.box.onpointercancel = () => (this.from = this.to = null);
    this.box.ondblclick = () => this.whole();
  }

  draw(what, theme) {
    Object.assign(this, what, { theme });
    put(this.heading, what.title);
    put(this.note, what.unit);
    this.below.forEach((label, k) => put(label, what.times[k]));
    this.paint();
    if (!this.hover.hidden) this.read();
    this.tell();
  }

  /** Let one trial's curve stand out; null: all alike. */
  light(lane) {
    this.lit = lane;
    if (this.theme) this.paint();
  }

  /** Where what is drawn lies. Names have room at the right, and numbers at the left, as much as they need. */
  measure(ctx) {
    const width = this.box.clientWidth, height = this.box.clientHeight, all = [...this.curves, ...(this.formers || [])], seen = this.ranged || all;
    this.named = this.curves.filter(({ lane }) => this.colours.has(lane) || lane === this.lit);
    this.alone = this.curves.some(({ lane }) => lane === this.lit) ? this.lit : null; // beside it all others are faint
    const x = extent(all.map((curve) => curve.x), false) || [0, 1];
    this.xs = this.zoom || this.span || across(x);
    this.reach = [Math.max(x[0], this.xs[0]), Math.min(x[1], this.xs[1])];
    const y = this.range || (this.zoom ? within(seen, this.zoom, this.log) : calmExtent(seen, this.log)) || [this.log ? 0.1 : 0, 1];
    this.ys = this.yChosen || this.range || (this.log ? [y[0] * 0.9, y[1] * 1.1] : padded(y));
    const widest = (texts) => Math.max(0, ...texts.map((text) => ctx.measureText(text).width));
    this.heights = this.up(...this.ys, this.log);
    const left = Math.max(this.size.left, Math.ceil(widest(this.heights.map(([, text]) => text)) + 8));
    const right = this.size.right ?? this.called(ctx, width, widest);
    this.marked = this.marks.filter(({ lane, x }) => x >= this.xs[0] && x <= this.xs[1] && (lane === undefined || this.named.some((curve) => curve.lane === lane))).slice(-MARKS);
    const top = this.marked.some(({ text }) => text) ? MARKED : this.size.top;
    this.area = { left, top, width: Math.max(10, width - left - right), height: height - top - this.size.bottom };
  }

  /** Choose what trials are called at the ends of their curves: as everywhere in the panel, where that has room. How much it needs. */
  called(ctx, width, widest) {
    const names = this.named.map(({ name }) => name), most = width * MOST_NAMED, { font } = ctx;
    ctx.font = `600 ${font}`; // as the one that stands out has it
    this.short = Object.fromEntries(names.map((name) => [name, (this.calls && this.calls[name]) ?? name]));
    const need = () => 26 + widest(names.map((name) => this.short[name]));
    let right = need();
    for (let letters = 16; right > most && letters > 5; letters--, right = need()) this.short = shortened(this.among || names, letters);
    ctx.font = font;
    return right;
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
    const dpr = devicePixelRatio || 1, ctx = this.canvas.getContext("2d"), width = this.box.clientWidth, height = this.box.clientHeight;
    if (width < LEAST) return;
    if (this.canvas.width !== Math.round(width * dpr) || this.canvas.height !== Math.round(height * dpr)) {
      Object.assign(this.canvas, { width: Math.round(width * dpr), height: Math.round(height * dpr) });
      style(this.canvas, "width", `${width}px`);
      style(this.canvas, "height", `${height}px`);
    }
    ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
    ctx.clearRect(0, 0, width, height);
    ctx.font = this.theme.font;
    this.measure(ctx);
    this.axes(ctx);
    ctx.save();
    ctx.beginPath();
    ctx.rect(this.area.left - 4, this.area.top - 4, this.area.width + 10, this.area.height + 8);
    ctx.clip();
    for (const curve of this.formers || []) this.former(ctx, curve);
    if (this.stacked) for (const curve of this.curves) this.share(ctx, curve);
    else for (const named of [false, true]) for (const curve of this.curves) if (this.named.includes(curve) === named) this.line(ctx, curve, named);
    ctx.restore();
    this.drawMarks(ctx);
    if (!this.small) this.names(ctx);
    if (this.at !== null) this.cross(ctx);
    this.marking(ctx);
  }

  axes(ctx) {
    const { left, width } = this.area, { line, soft } = this.theme;
    ctx.strokeStyle = line;
    ctx.fillStyle = soft;
    ctx.lineWidth = 1;
    ctx.textBaseline = "middle";
    ctx.textAlign = "right";
    for (const [value, text] of this.heights) {
      const y = Math.round(this.toY(value)) + 0.5;
      ctx.beginPath();
      ctx.moveTo(left, y);
      ctx.lineTo(left + width, y);
      ctx.stroke();
      ctx.fillText(text, left - 6, y);
    }
    if (this.small) return; // its times are texts below it
    ctx.textBaseline = "alphabetic";
    ctx.textAlign = "center";
    for (const [value, text] of this.across(...this.xs, Math.max(2, Math.floor(width / this.size.apart)))) {
      ctx.fillText(text, Math.min(Math.max(this.toX(value), left + ctx.measureText(text).width / 2 - 8), left + width), this.box.clientHeight - 6);
    }
  }

  /** Dotted lines where something changed, in the trial's colour if it was one's; above them what, of the newest. */
  drawMarks(ctx) {
    const { left, top, width, height } = this.area, { soft, text, ground } = this.theme, at = this.marked.map(({ x }) => this.toX(x));
    const room = ({ lane }) => (lane === undefined ? 8 : 20), wide = this.marked.map((mark) => (mark.text ? ctx.measureText(mark.text).width + room(mark) : Infinity));
    const placed = labels(at, wide, left, left + width, 2), labelled = new Set(placed.map(({ k }) => k));
    ctx.setLineDash([2, 3]);
    ctx.lineWidth = this.small ? 1 : 1.2;
    this.marked.forEach(({ lane, faint }, k) => {
      ctx.strokeStyle = this.colours.get(lane) || (this.stacked ? text : soft);
      ctx.globalAlpha = faint ? 0.5 : 1;
      ctx.beginPath();
      ctx.moveTo(at[k], labelled.has(k) ? 2 : top);
      ctx.lineTo(at[k], top + height);
      ctx.stroke();
    });
    ctx.globalAlpha = 1;
    ctx.setLineDash([]);
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    for (const { k, left: from, row } of placed) {
      const y = 7 + 16 * row, { lane, text: words } = this.marked[k];
      ctx.fillStyle = ground; // no line goes through it
      ctx.fillRect(from, y - 7, wide[k] - 2, 14);
      ctx.fillStyle = this.colours.get(lane) || soft;
      if (lane !== undefined) paintShape(ctx, lane, from + 6, y, 8);
      ctx.fillStyle = text;
      ctx.fillText(words, from + room({ lane }) - 4, y);
    }
  }

  /** How faint it is beside the one that stands out. */
  faded(lane) {
    return this.alone !== null && this.alone !== lane ? FAINT : 1;
  }

  line(ctx, { lane, x, raw, y, low, high, dashed, dots }, named) {
    const { soft, ground } = this.theme, colour = this.colours.get(lane) || (lane === this.lit ? soft : mix(soft, ground, 0.45));
    const faded = this.faded(lane), pale = named && raw && this.colours.size <= MANY;
    ctx.lineJoin = "round";
    ctx.globalAlpha = faded * 0.15;
    if (pale && low && high) this.band(ctx, x, low, high, colour);
    ctx.globalAlpha = faded * 0.3;
    if (pale && raw !== y) this.stroke(ctx, x, raw, colour, 1);
    ctx.globalAlpha = faded * (named ? 1 : 0.7);
    if (!dots) this.stroke(ctx, x, y, colour, lane === this.lit ? 2.6 : named ? 1.8 : 1, dashed ? [5, 3] : []);
    if (named && raw && (dots || x.length <= FEW)) {
      ctx.fillStyle = colour;
      x.forEach((at, k) => this.drawn(y[k]) && paintShape(ctx, lane, this.toX(at), this.toY(y[k]), 6));
    }
    ctx.globalAlpha = 1;
  }

  /** An area that lies on the one below it. */
  share(ctx, { lane, x, low, y, dashed }) {
    ctx.globalAlpha = this.theme.alpha * (dashed ? 0.7 : 1) * this.faded(lane);
    this.band(ctx, x, low, y, this.colours.get(lane));
    ctx.globalAlpha = 1;
    if (this.curves.length <= MANY) this.stroke(ctx, x, y, this.theme.ground, 1);
  }

  /** The run before, faint and dashed: it has no name at its end and is not read under the pointer. */
  former(ctx, { lane, x, y }) {
    const { soft, ground } = this.theme;
    ctx.globalAlpha = 0.5 * this.faded(lane);
    this.stroke(ctx, x, y, this.colours.get(lane) || mix(soft, ground, 0.45), 1.3, [5, 4]);
    ctx.globalAlpha = 1;
  }

  drawn(value) {
    return Number.isFinite(value) && !(this.log && value <= 0);
  }

  stroke(ctx, x, y, colour, width, dash = []) {
    ctx.setLineDash(dash);
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
    ctx.setLineDash([]);
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
    const { text, soft } = this.theme, { left, top, width, height } = this.area;
    const ends = this.named.map((curve) => [curve, curve.y.findLastIndex((v, k) => this.drawn(v) && curve.x[k] <= this.xs[1])]).filter(([{ x }, k]) => k >= 0 && x[k] >= this.xs[0]);
    const inside = (y) => Math.min(Math.max(y, top), top + height);
    const at = ends.map(([curve, k]) => [this.toX(curve.x[k]), inside(this.toY(curve.y[k]))]);
    const heights = spread(at.map(([, y]) => y), LABEL_GAP, top + 4, top + height - 2);
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ends.forEach(([{ lane, name, y: all }, last], k) => {
      const [x, y] = at[k], edge = left + width + 14;
      ctx.fillStyle = this.colours.get(lane) || soft;
      ctx.globalAlpha = this.faded(lane) < 1 ? 0.5 : 1;
      ctx.strokeStyle = ctx.fillStyle;
      if (!paintEnd(ctx, this.endOf && !all.slice(last + 1).some((v) => this.drawn(v)) ? this.endOf(lane) : "", x, y, 10)) paintShape(ctx, lane, x, y, 9);
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
      ctx.fillText(this.short[name], edge, heights[k]);
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
    if (!this.small) {
      const label = this.place(this.at, true), wide = ctx.measureText(label).width + 12, y = top + height + 3;
      ctx.fillStyle = text;
      ctx.fillRect(x - wide / 2, y, wide, 16);
      ctx.fillStyle = ground;
      ctx.textAlign = "center";
      ctx.textBaseline = "middle";
      ctx.fillText(label, x, y + 8.5);
    }
    for (const { curve, k } of this.stacked ? [] : this.under()) {
      ctx.fillStyle = this.colours.get(curve.lane) || this.theme.soft;
      if (this.named.includes(curve)) paintShape(ctx, curve.lane, x, this.toY(curve.y[k]), this.small ? 8 : 10);
    }
  }

  /** The curves at the cursor with the point of each that is nearest; the best first, where one may be. */
  under() {
    const near = (this.xs[1] - this.xs[0]) / 20, found = [];
    for (const curve of this.curves) {
      const k = this.at === null ? -1 : nearest(curve.x, this.at);
      if (k < 0 || !Number.isFinite(valueOf(curve, k))) continue;
      const inside = this.at >= curve.x[0] - near && this.at <= curve.x[curve.x.length - 1] + near;
      if (inside && (Math.abs(curve.x[k] - this.at) <= near || curve.x.length <= FEW)) found.push({ curve, k });
    }
    return this.small ? found : found.sort((a, b) => (this.way || -1) * (b.curve.y[b.k] - a.curve.y[a.k]));
  }

  pointed(offset) {
    if (!this.area || !this.curves.length) return;
    const share = (offset - this.area.left) / this.area.width;
    this.moved(share < -0.02 || share > 1.02 ? null : this.xs[0] + share * (this.xs[1] - this.xs[0]), this);
  }

  /** Plus and minus zoom at the cursor, Escape shows all again. Left and right move the cursor by a step, with Shift by ten; Home and End
   * to the ends; Escape takes it away. */
  key(event) {
    if (!this.area || !this.curves.length) return;
    const [low, high] = this.reach, step = (this.step || (this.xs[1] - this.xs[0]) / this.size.steps) * (event.shiftKey ? 10 : 1), from = this.at ?? high;
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
    Object.assign(this, { at, here });
    if (!this.theme) return;
    this.paint();
    this.read();
  }

  read() {
    const found = this.here && this.at !== null ? this.under() : [];
    this.hover.hidden = !found.length;
    if (!found.length) return;
    const line = ({ curve, k }, n) => {
      const swatch = Number.isInteger(curve.lane) ? make("span", "tsnb-mark", shape(curve.lane)) : make("span", "tsnb-swatch");
      style(swatch, "--tsnb-lane", this.colours.get(curve.lane) || this.theme.soft);
      const best = this.way && n === 0 && (!this.paired || this.way * curve.y[k] > 0) ? " ★" : "";
      return make("div", "", swatch, make("span", "tsnb-trial", curve.name), make("b", "", this.show(valueOf(curve, k)) + best));
    };
    const more = found.length > SAID ? [make("div", "tsnb-soft", `and ${found.length - SAID} more`)] : [], x = this.toX(this.at);
    const near = this.marked.filter((mark) => Math.abs(this.toX(mark.x) - x) < NEAR).slice(-TOLD).map(({ whole }) => make("div", "tsnb-told", whole));
    this.hover.replaceChildren(make("div", "tsnb-soft", this.place(this.at, true, true)), ...found.slice(0, SAID).map(line), ...more, ...near);
    const left = x < this.box.clientWidth / 2;
    style(this.hover, "left", left ? `${x + 12}px` : "auto");
    style(this.hover, "right", left ? "auto" : `${this.box.clientWidth - x + 12}px`);
  }

  /** What a screen reader says of it: the values at the cursor, or the last ones. */
  tell(now) {
    const ms = Date.now();
    if (!now && ms - (this.toldMs || 0) < TOLD_MS) return;
    this.toldMs = ms;
    const last = this.curves.map((curve) => ({ curve, k: curve.y.length - 1 })).filter(({ curve, k }) => (valueOf(curve, k) ?? null) !== null);
    const words = (this.at === null ? last : this.under()).slice(0, SAID).map(({ curve, k }) => `${curve.name} ${this.show(this.at === null && this.last ? this.last(curve.lane) : valueOf(curve, k))}`);
    const where = this.at === null ? this.now || "now" : this.place(this.at, true, true);
    const set = this.marks.filter(({ lane }) => lane !== undefined).slice(-TOLD).map(({ x, whole }) => `${whole.replace(": ", " ")} at ${this.place(x, true, true)}`);
    attribute(this.box, "aria-label", `${this.title}${this.small ? "," : ""} ${this.unit}; ${where}: ${words.join(", ") || "nothing yet"}${set.length ? `; set: ${set.join(", ")}` : ""}`);
  }
}

const valueOf = ({ own, y }, k) => (own || y)[k];
