// The large charts: how the stream flows (buffer, lag, speed, share of compute), and those of the details. What they
// draw comes from the store.

import uPlot from "uplot";
import { Chart } from "./chart.js";
import { gpuName } from "./details.js";
import { make } from "./dom.js";
import { cpuSeries, gpuSeries } from "./series.js";
import { COLOURS, again, colourIn } from "./theme.js";
import { cores, count, percent, steadyTop } from "./words.js";

const LAG = { title: "Lag", unit: "batches behind the fastest", show: (v) => count(v) };
const RATE = { title: "Speed", unit: "samples/s", show: (v) => count(v) };
const SHARE = { title: "Share of compute", unit: "by trial", show: (v) => percent(v), stacked: true, told: true };
const FILL = { title: "Buffer", unit: "batches ready", show: (v) => count(v) };
const CPU = { title: "CPU", unit: "cores busy, by process", show: (v, top) => (top >= 10 ? count(v) : cores(v)), stacked: true };
const GPUS = { title: "GPU", unit: "share of time busy", show: (v) => percent(v) };

const LOADER = { name: "loader", colour: "#59636e" };

/** A group of charts that share one cursor and one width. */
class Group {
  constructor(theme, sync, className) {
    Object.assign(this, { theme, sync, charts: new Map() });
    this.element = make("div", className);
    this.observer = new ResizeObserver(() => this.each((chart) => chart.fit()));
    this.observer.observe(this.element);
  }

  /** Draw a chart; it is made when it is drawn first. */
  put(kind, what, range) {
    if (!this.charts.has(kind.title)) {
      const chart = new Chart(kind, this.sync);
      this.charts.set(kind.title, chart);
      this.element.append(chart.element);
    }
    const chart = this.charts.get(kind.title);
    chart.draw({ ...what, range: range(chart.plot ? chart.range : null) }, this.theme());
  }

  each(act) {
    for (const chart of this.charts.values()) act(chart);
  }

  /** The theme has changed: canvases must be painted anew. */
  repaint() {
    this.each((chart) => chart.forget());
  }

  destroy() {
    this.observer.disconnect();
    this.repaint();
  }
}

export class Charts {
  constructor(theme) {
    this.theme = theme;
    this.sync = uPlot.sync(`tsnb-${Math.random()}`).key;
    this.main = new Group(theme, this.sync, "tsnb-charts");
    this.more = new Group(theme, this.sync, "tsnb-charts tsnb-more");
  }

  /** `over`: the stream has ended, or this is a recording. `main`, `details`: which charts are seen; `machine`: those of
   * the machine too; `found`: the stream's `series` over that span. */
  draw(store, spanS, { over, main = true, details, machine = true, found }) {
    const { lanes, stream } = store, reel = store.reel.withoutIdleEnd();
    const tracks = lanes.map((lane, k) => ({ name: lane ? lane.name : "", colour: colourIn(k, this.theme() && this.theme().dark), dashed: again(k) }));
    const end = reel.last ? reel.last.t : 0, idle = reel !== store.reel;
    const marks = store.marks.map(({ t, text, kind }) => ({ x: Math.min(0, t - end), text: brief(text), whole: text, kind }));
    const base = { spanS, over: over || idle, marks, tracks, x: found.x };
    const simple = (lists) => ({ ...base, lists, own: lists });
    const top = (peak) => (before) => [0, steadyTop(before ? before[1] : 0, peak)];
    const window = stream.window || 8;
    if (main) {
      this.main.put(FILL, simple(found.fill), top(Math.max(window, highest(found.fill))));
      this.main.put(LAG, simple(found.lag), top(Math.max(window, highest(found.lag))));
      this.main.put(RATE, simple(found.rate), top(highest(found.rate) || 100)); // an axis to look at before anything is on it
      this.main.put(SHARE, { ...base, lists: found.share, own: found.own }, () => [0, 1]);
    }
    if (details && machine) this.drawMachine(store, reel, base);
  }

  drawMachine(store, reel, base) {
    const { lanes, machine, gpus } = store;
    if (!machine) return;
    const { x, own, stack } = cpuSeries(reel, lanes.length, base.spanS);
    const tracks = [LOADER, ...base.tracks];
    this.more.put(CPU, { ...base, x, own, lists: stack, tracks }, () => [0, Math.max(machine.cores, Math.ceil(highest(stack)))]);
    if (!machine.gpus.length) return;
    const busy = gpuSeries(reel, base.spanS);
    const devices = busy.own.map((_, k) => ({ name: machine.gpus[k] ? gpuName(machine.gpus[k], gpus[k]) : `GPU ${k}`, colour: COLOURS[(k + 4) % COLOURS.length] }));
    this.more.put(GPUS, { ...base, x: busy.x, own: busy.own, lists: busy.own, tracks: devices }, () => [0, 1]);
  }

  /** Let one lane stand out in all charts by trial; null: all alike. */
  light(lane) {
    for (const group of [this.main, this.more]) {
      group.each((chart) => {
        if (chart.kind !== GPUS) chart.light(lane !== null && chart.kind === CPU ? lane + 1 : lane);
      });
    }
  }

  repaint() {
    this.main.repaint();
    this.more.repaint();
  }

  destroy() {
    this.main.destroy();
    this.more.destroy();
  }
}

const brief = (text) => (text.length > 28 ? `${text.slice(0, 27)}…` : text);
const highest = (lists) => lists.reduce((top, list) => list.reduce((t, v) => (v > t ? v : t), top), 0);
