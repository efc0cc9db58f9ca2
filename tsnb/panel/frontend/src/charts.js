// The three charts over time: lag, throughput, share of compute. uPlot draws; what it draws comes from the store.

import uPlot from "uplot";
import { make, put } from "./dom.js";
import { ago, colour, count, percent, steadyTop } from "./words.js";

const HEIGHT = 104;
const KINDS = [
  { key: "lag", title: "Lag", unit: "batches behind the fastest", show: (v) => count(v) },
  { key: "rate", title: "Throughput", unit: "samples/s", show: (v) => count(v) },
  { key: "share", title: "Share of compute", unit: "by trial", show: (v) => percent(v), stacked: true },
];

export class Charts {
  constructor(theme) {
    this.theme = theme;
    this.sync = uPlot.sync(`tsnb-${Math.random()}`).key;
    this.charts = KINDS.map((kind) => new Chart(kind, this.sync));
    this.element = make("div", "tsnb-charts", ...this.charts.map((chart) => chart.element));
    this.observer = new ResizeObserver(() => this.charts.forEach((chart) => chart.fit()));
    this.observer.observe(this.element);
  }

  draw(store, spanS) {
    const series = store.series(spanS), names = store.lanes.map((lane) => (lane ? lane.name : ""));
    const peak = {
      lag: Math.max(store.stream.window || 8, highest(series.lag)),
      rate: highest(series.rate) || 100, // an axis to look at before there is anything on it
      share: 1,
    };
    for (const chart of this.charts) chart.draw(series, names, peak[chart.kind.key], spanS, this.theme());
  }

  /** The theme has changed: canvases must be painted anew. */
  repaint() {
    for (const chart of this.charts) chart.forget();
  }

  destroy() {
    this.observer.disconnect();
    for (const chart of this.charts) chart.forget();
  }
}

class Chart {
  constructor(kind, sync) {
    Object.assign(this, { kind, sync, top: 0, spanS: 120 });
    const title = make("figcaption", "", make("b", "", kind.title), " ", make("span", "tsnb-soft", kind.unit));
    this.canvas = make("div", "tsnb-canvas");
    this.hover = make("div", "tsnb-hover");
    this.hover.hidden = true;
    this.canvas.append(this.hover);
    this.times = ["", "", ""].map((text) => make("span", "", text));
    this.element = make("figure", "tsnb-chart", title, this.canvas, make("div", "tsnb-times tsnb-soft", ...this.times));
  }

  draw(series, names, peak, spanS, theme) {
    Object.assign(this, { series, names, spanS, theme });
    this.top = this.kind.key === "share" ? 1 : steadyTop(this.top, peak);
    if (!this.plot || this.lanes !== names.length) this.open();
    if (!this.plot) return;
    this.times.forEach((label, k) => put(label, ago(-spanS * (1 - k / 2), k === 0)));
    this.plot.setData(this.columns(), false);
    this.plot.setScale("x", { min: -spanS, max: 0 });
    this.plot.setScale("y", { min: 0, max: this.top });
  }

  /** Stacked areas are painted from the top down, each over the one before. */
  columns() {
    const lists = this.series[this.kind.key];
    return [this.series.x, ...(this.kind.stacked ? lists.slice().reverse() : lists)];
  }

  open() {
    this.forget();
    const width = Math.floor(this.canvas.clientWidth);
    if (width < 80) return;
    this.lanes = this.names.length;
    this.plot = new uPlot(this.options(width), [[], ...this.names.map(() => [])], this.canvas);
  }

  forget() {
    if (this.plot) this.plot.destroy();
    this.plot = null;
  }

  fit() {
    const width = Math.floor(this.canvas.clientWidth);
    if (this.plot && width >= 80 && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
    else if (!this.plot && this.series) this.draw(this.series, this.names, this.top, this.spanS, this.theme);
  }

  options(width) {
    const { soft, line, font } = this.theme;
    const axis = { stroke: soft, font, ticks: { show: false } };
    return {
      width,
      height: HEIGHT,
      padding: [6, 14, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { show: !this.kind.stacked, size: 6 }, sync: { key: this.sync } },
      series: [{}, ...this.lines()],
      scales: { x: { time: false, auto: false }, y: { auto: false, range: () => [0, this.top] } },
      axes: [
        { ...axis, size: 4, grid: { show: false }, splits: () => [], values: () => [] }, // written below, in HTML
        { ...axis, size: 36, gap: 5, grid: { stroke: line, width: 1 }, splits: () => [0, this.top / 2, this.top], values: (_, at) => at.map((v) => this.kind.show(v)) },
      ],
      hooks: { setCursor: [(plot) => this.point(plot)] },
    };
  }

  lines() {
    const { ground, alpha } = this.theme;
    const lanes = this.names.map((_, lane) => lane);
    if (!this.kind.stacked) return lanes.map((lane) => ({ stroke: colour(lane), width: 1.6, points: { show: false } }));
    const area = (lane) => ({ stroke: ground, width: 1, fill: mix(colour(lane), ground, alpha), points: { show: false } });
    return lanes.reverse().map(area);
  }

  /** The values under the pointer. Only the chart that has it shows them; the others show the line. */
  point(plot) {
    const { idx, left } = plot.cursor;
    const over = plot.over.matches(":hover");
    if (!over || idx === null || idx === undefined || left < 0) {
      this.hover.hidden = true;
      return;
    }
    const list = this.kind.stacked ? this.series.own : this.series[this.kind.key];
    const rows = this.names.map((name, lane) => [name, list[lane][idx], lane]).filter(([, v]) => v !== null && v !== undefined);
    this.hover.replaceChildren(make("div", "tsnb-soft", ago(this.series.x[idx], true)), ...rows.map((row) => this.line(...row)));
    this.hover.hidden = rows.length === 0;
    const right = left > plot.over.clientWidth / 2;
    this.hover.style.left = right ? "auto" : `${plot.over.offsetLeft + left + 12}px`;
    this.hover.style.right = right ? `${this.canvas.clientWidth - plot.over.offsetLeft - left + 12}px` : "auto";
  }

  line(name, value, lane) {
    const swatch = make("span", "tsnb-swatch");
    swatch.style.background = colour(lane);
    const number = make("b");
    put(number, this.kind.show(value));
    return make("div", "", swatch, make("span", "tsnb-trial", name), number);
  }
}

const highest = (lists) => lists.reduce((top, list) => list.reduce((t, v) => (v > t ? v : t), top), 0);

/** `part` of one colour over another: canvases know no color-mix everywhere yet. */
export function mix(front, back, part) {
  const numbers = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
  const [a, b] = [numbers(front), numbers(back)];
  return `rgb(${a.map((v, k) => Math.round(v * part + b[k] * (1 - part))).join(",")})`;
}
