// One chart over time: uPlot draws its lines and areas, this file its axes' words, its marks and the values under the
// pointer or, with the arrow keys, under the cursor.

import uPlot from "uplot";
import { attribute, make, put } from "./dom.js";
import { labels } from "./marks.js";
import { mix } from "./theme.js";
import { ago } from "./words.js";

const HEIGHT = 104;
const LEFT = 40, RIGHT = 14; // px beside what is drawn
const NEAR = 7; // px from a mark within which the pointer is at it
const FAINT = 0.22; // of a line or area while another stands out
const USUAL = new Set(["joined", "left"]); // marks that are fainter than others
const MANY = 6; // more marks than this, and the usual ones have no labels
const CROWDED = 24; // and more than this, no lines: they would hide what they stand in
const TOLD_MS = 3000; // as often as the words for screen readers are renewed

/**
 * kind: {title, unit, show(value), tick(value, range)?, stacked?, told?}; told: its marks have labels; sparse: its lines go on where nothing was logged for a while. draw() takes {x, lists, own, tracks, range, marks, spanS, over}: `lists` are
 * drawn, `own` are said; tracks: [{name, colour, dashed}], one a list; range: [bottom, top].
 */
export class Chart {
  constructor(kind, sync) {
    Object.assign(this, { kind, sync, range: [0, 1], lit: null });
    const title = make("figcaption", "", make("b", "", kind.title), " ", make("span", "tsnb-soft", kind.unit));
    this.hover = make("div", "tsnb-hover");
    this.hover.hidden = true;
    this.canvas = make("div", "tsnb-canvas", this.hover);
    this.canvas.tabIndex = 0;
    attribute(this.canvas, "role", "img");
    this.canvas.onkeydown = (event) => this.key(event);
    this.canvas.onblur = () => this.leave();
    this.times = ["", "", ""].map((text) => make("span", "", text));
    this.element = make("figure", "tsnb-chart", title, this.canvas, make("div", "tsnb-times tsnb-soft", ...this.times));
  }

  draw(what, theme) {
    Object.assign(this, what, { theme });
    const dressed = what.tracks.map(({ colour, dashed }) => colour + Boolean(dashed)).join();
    if (!this.plot || this.dressed !== dressed) this.open(dressed);
    this.times.forEach((label, k) => put(label, ago(-this.spanS * (1 - k / 2), k === 0, this.over)));
    this.tell();
    if (!this.plot) return;
    this.plot.batch(() => {
      this.plot.setData([this.x, ...(this.kind.stacked ? this.lists.slice().reverse() : this.lists)], false);
      this.plot.setScale("x", { min: -this.spanS, max: 0 });
      this.plot.setScale("y", { min: this.range[0], max: this.range[1] });
    });
    if (!this.hover.hidden) this.point(this.plot);
  }

  open(dressed) {
    this.forget();
    const width = Math.floor(this.canvas.clientWidth);
    if (width < 80) return;
    this.dressed = dressed;
    this.plot = new uPlot(this.options(width), [[], ...this.tracks.map(() => [])], this.canvas);
    this.light(this.lit);
  }

  forget() {
    if (this.plot) this.plot.destroy();
    this.plot = null;
  }

  fit() {
    const width = Math.floor(this.canvas.clientWidth);
    if (this.plot && width >= 80 && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
    else if (!this.plot && this.tracks) this.draw({ tracks: this.tracks }, this.theme);
  }

  /** Let one track stand out; null: all alike. */
  light(track) {
    this.lit = track !== null && track < (this.tracks || []).length ? track : null;
    if (!this.plot) return;
    if (this.kind.stacked) this.plot.redraw(false); // areas lie one over another: see-through ones would mix their colours
    else this.plot.setSeries(this.lit === null ? null : this.lit + 1, { focus: true });
  }

  options(width) {
    const { soft, line, font } = this.theme;
    const axis = { stroke: soft, font, ticks: { show: false } };
    const splits = () => [this.range[0], (this.range[0] + this.range[1]) / 2, this.range[1]];
    return {
      width,
      height: HEIGHT,
      padding: [6, RIGHT, 0, 0],
      legend: { show: false },
      focus: { alpha: FAINT },
      cursor: { y: false, drag: { x: false, y: false }, points: { show: !this.kind.stacked, size: 6 }, sync: { key: this.sync } },
      series: [{}, ...this.lines()],
      scales: { x: { time: false, auto: false }, y: { auto: false, range: () => this.range } },
      axes: [
        { ...axis, size: 4, grid: { show: false }, splits: () => [], values: () => [] }, // written below, in HTML
        { ...axis, size: LEFT, gap: 5, grid: { stroke: line, width: 1 }, splits, values: (_, at) => at.map((v) => this.tick(v)) },
      ],
      hooks: { setCursor: [(plot) => this.point(plot)], draw: [(plot) => this.paintMarks(plot)] },
    };
  }

  /** A number beside the axis: as everywhere, but for an own way where there is no room for that. */
  tick(value) {
    return this.kind.tick ? this.kind.tick(value, this.range) : this.kind.show(value, this.range[1]);
  }

  lines() {
    const { ground, alpha } = this.theme;
    const dash = (track) => (track.dashed ? [5, 3] : undefined);
    if (!this.kind.stacked) return this.tracks.map((track) => ({ stroke: track.colour, width: 1.6, dash: dash(track), spanGaps: Boolean(this.kind.sparse), points: { show: false } }));
    const full = (track) => (track.dashed ? alpha * 0.7 : alpha);
    const part = (track, k) => full(track) * (this.lit === null || this.lit === k ? 1 : FAINT);
    const area = (track, k) => ({ stroke: ground, width: 1, fill: () => mix(track.colour, ground, part(track, k)), points: { show: false } });
    return this.tracks.map(area).reverse(); // painted from the top down, each over the one before
  }

  paintMarks(plot) {
    const { ctx, bbox } = plot, { text, soft, ground, font } = this.theme, dpr = devicePixelRatio || 1;
    const shown = this.marks.filter(({ x }) => x >= -this.spanS);
    if (!shown.length) return;
    ctx.save();
    ctx.lineWidth = dpr;
    ctx.strokeStyle = this.kind.told ? text : soft;
    ctx.setLineDash([2 * dpr, 2 * dpr]);
    const at = shown.map((mark) => Math.round(plot.valToPos(mark.x, "x", true)) + 0.5);
    const crowded = shown.length > CROWDED;
    shown.forEach(({ kind }, k) => {
      if (crowded && USUAL.has(kind)) return;
      ctx.globalAlpha = (this.kind.told ? 0.9 : 0.7) * (USUAL.has(kind) ? 0.5 : 1);
      ctx.beginPath();
      ctx.moveTo(at[k], bbox.top);
      ctx.lineTo(at[k], bbox.top + bbox.height);
      ctx.stroke();
    });
    if (this.kind.told) {
      ctx.setLineDash([]);
      ctx.font = font.replace(/^[\d.]+px/, `${10 * dpr}px`);
      ctx.textBaseline = "middle";
      ctx.textAlign = "left";
      const wide = shown.map((mark) => ctx.measureText(mark.text).width + 8 * dpr);
      const many = shown.length > MANY; // a sweep's trials come and go: their lines say enough
      if (many) shown.forEach(({ kind }, k) => USUAL.has(kind) && (wide[k] = Infinity));
      for (const { k, left, row } of labels(at, wide, bbox.left, bbox.left + bbox.width, 2)) {
        const top = bbox.top + (3 + row * 16) * dpr;
        ctx.globalAlpha = 0.82;
        ctx.fillStyle = ground;
        ctx.fillRect(left, top, wide[k], 14 * dpr);
        ctx.globalAlpha = 1;
        ctx.fillStyle = text;
        ctx.fillText(shown[k].text, left + 4 * dpr, top + 7.5 * dpr);
      }
    }
    ctx.restore();
  }

  /** Left and right move the cursor by a step, with Shift by ten; Home and End to the ends; Escape takes it away. */
  key(event) {
    if (!this.plot || !this.x.length) return;
    const last = this.x.length - 1, from = this.at ?? last, step = event.shiftKey ? 10 : 1;
    const to = { ArrowLeft: from - step, ArrowRight: from + step, Home: 0, End: last }[event.key];
    if (event.key === "Escape") this.leave();
    if (to === undefined) return;
    event.preventDefault();
    this.at = Math.max(0, Math.min(last, to));
    this.plot.setCursor({ left: this.plot.valToPos(this.x[this.at], "x"), top: 10 });
  }

  leave() {
    this.at = null;
    if (this.plot) this.plot.setCursor({ left: -10, top: -10 });
  }

  /** The values under the pointer. Only the chart that has it shows them; the others show the line. */
  point(plot) {
    const { idx, left } = plot.cursor;
    const over = plot.over.matches(":hover") || (this.at ?? null) !== null;
    const hidden = !over || idx === null || idx === undefined || left < 0 || idx >= this.x.length;
    const rows = hidden ? [] : this.tracks.map((track, k) => [track, this.own[k][idx]]).filter(([, v]) => v !== null && v !== undefined);
    this.hover.hidden = rows.length === 0;
    if (this.hover.hidden) return;
    const near = this.marks.filter(({ x }) => Math.abs(plot.valToPos(x, "x") - left) < NEAR);
    const lines = rows.map(([track, value]) => this.line(track, value));
    this.hover.replaceChildren(make("div", "tsnb-soft", ago(this.x[idx], true, this.over)), ...lines, ...near.map(({ whole }) => make("div", "tsnb-told", whole)));
    const right = left > plot.over.clientWidth / 2;
    this.hover.style.left = right ? "auto" : `${plot.over.offsetLeft + left + 12}px`;
    this.hover.style.right = right ? `${this.canvas.clientWidth - plot.over.offsetLeft - left + 12}px` : "auto";
    if ((this.at ?? null) !== null) this.tell(true);
  }

  line(track, value) {
    const swatch = make("span", track.dashed ? "tsnb-swatch tsnb-hollow" : "tsnb-swatch");
    swatch.style.setProperty("--tsnb-lane", track.colour);
    return make("div", "", swatch, make("span", "tsnb-trial", track.name), make("b", "", this.kind.show(value, this.range[1])));
  }

  /** What a screen reader says of it: the values at the cursor, or the last ones. */
  tell(now) {
    const ms = Date.now();
    if (!now && ms - (this.toldMs || 0) < TOLD_MS) return;
    this.toldMs = ms;
    const at = this.at ?? this.x.length - 1;
    const said = this.tracks.map(({ name }, k) => [name, this.own[k][at]]).filter(([, v]) => v !== null && v !== undefined);
    const when = at >= 0 ? ago(this.x[at], true, this.over) : "nothing yet";
    const words = said.map(([name, v]) => `${name} ${this.kind.show(v, this.range[1])}`).join(", ");
    attribute(this.canvas, "aria-label", `${this.kind.title}, ${this.kind.unit}; ${when}: ${words}`);
  }
}
