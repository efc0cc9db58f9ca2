// The small charts: how the stream flows (buffer, lag, speed, share of compute), and those of the details. What they draw comes from
// the store.

import { gpuName } from "./details.js";
import { make } from "./dom.js";
import { Plot } from "./plot.js";
import { cpuSeries, gpuSeries } from "./series.js";
import { COLOURS, again, colourIn } from "./theme.js";
import { ago, cores, count, percent, roundTop } from "./words.js";

// told: its marks have labels
const LAG = { title: "Lag", unit: "batches behind the fastest", show: (v) => count(v) };
const RATE = { title: "Speed", unit: "samples/s", show: (v) => count(v) };
const SHARE = { title: "Share of compute", unit: "by trial", show: (v) => percent(v), stacked: true, told: true };
const FILL = { title: "Buffer", unit: "batches ready", show: (v) => count(v) };
const CPU = { title: "CPU", unit: "cores busy, by process", show: (v, top) => (top >= 10 ? count(v) : cores(v)), stacked: true };
const GPUS = { title: "GPU", unit: "share of time busy", show: (v) => percent(v) };

const LOADER = { lane: "loader", name: "loader", colour: "#59636e" };
const USUAL = new Set(["joined", "left"]); // marks that are fainter than others
const MANY = 6; // more marks than this, and the usual ones have no labels
const CROWDED = 24; // and more than this, no lines: they would hide what they stand in

/** A group of charts that share one width. */
class Group {
  constructor(theme, moved, className) {
    Object.assign(this, { theme, moved, charts: new Map() });
    this.element = make("div", className);
    this.observer = new ResizeObserver(() => this.each((chart) => chart.theme && chart.paint()));
    this.observer.observe(this.element);
  }

  /** Draw a chart of `lists`, one a track, of which `own` is said; it is made when it is drawn first. `high`: the top of its axis. */
  put(kind, { x, lists, own = lists, tracks, marks, spanS, over }, high) {
    if (!this.charts.has(kind)) {
      this.charts.set(kind, new Plot(this.moved, { small: true }));
      this.element.append(this.charts.get(kind).element);
    }
    const chart = this.charts.get(kind), show = (value) => kind.show(value, high);
    const below = (k) => lists[k].map((value, at) => (value === null ? null : k ? lists[k - 1][at] : 0));
    const curves = tracks.map((track, k) => ({ ...track, x, y: lists[k], own: own[k], low: kind.stacked ? below(k) : null }));
    const shown = marks.filter((mark) => mark.x >= -spanS), crowded = shown.length > CROWDED;
    chart.draw({
      ...kind,
      curves,
      show,
      colours: new Map(tracks.map(({ lane, colour }) => [lane, colour])),
      marks: shown.filter(({ faint }) => !faint || !crowded).map((mark) => ({ ...mark, text: kind.told && !(mark.faint && shown.length > MANY) ? mark.text : "" })),
      span: [-spanS, 0],
      range: [0, high],
      up: () => [0, high / 2, high].map((value) => [value, show(value)]),
      place: (at) => ago(at, true, over),
      times: [1, 0.5, 0].map((part) => ago(-spanS * part, part === 1, over)),
      now: ago(0, true, over),
    }, this.theme());
  }

  each(act) {
    for (const chart of this.charts.values()) act(chart);
  }
}

export class Charts {
  constructor(theme) {
    const moved = (at, from) => this.each((chart) => chart.point(at, chart === from)); // one cursor through all of them
    this.theme = theme;
    this.main = new Group(theme, moved, "tsnb-charts");
    this.more = new Group(theme, moved, "tsnb-charts tsnb-more");
  }

  /** `over`: the stream has ended, or this is a recording. `main`, `details`: which charts are seen; `machine`: those of
   * the machine too; `found`: the stream's `series` over that span. */
  draw(store, spanS, { over, main = true, details, machine = true, found }) {
    const { lanes, stream } = store, reel = store.reel.withoutIdleEnd();
    const tracks = lanes.map((lane, k) => ({ lane: k, name: lane ? lane.name : "", colour: colourIn(k, this.theme() && this.theme().dark), dashed: again(k) }));
    const end = reel.last ? reel.last.t : 0, idle = reel !== store.reel;
    const marks = store.marks.map(({ t, text, kind }) => ({ x: Math.min(0, t - end), text: brief(text), whole: text, faint: USUAL.has(kind) }));
    const base = { spanS, over: over || idle, marks, tracks, x: found.x };
    const window = stream.window || 8;
    if (!this.theme()) return;
    if (main) {
      this.main.put(FILL, { ...base, lists: found.fill }, roundTop(Math.max(window, highest(found.fill))));
      this.main.put(LAG, { ...base, lists: found.lag }, roundTop(Math.max(window, highest(found.lag))));
      this.main.put(RATE, { ...base, lists: found.rate }, roundTop(highest(found.rate) || 100)); // an axis to look at before anything is on it
      this.main.put(SHARE, { ...base, lists: found.share, own: found.own }, 1);
    }
    if (details && machine) this.drawMachine(store, reel, base);
  }

  drawMachine(store, reel, base) {
    const { lanes, machine, gpus } = store;
    if (!machine) return;
    const { x, own, stack } = cpuSeries(reel, lanes.length, base.spanS);
    this.more.put(CPU, { ...base, x, own, lists: stack, tracks: [LOADER, ...base.tracks] }, Math.max(machine.cores, Math.ceil(highest(stack))));
    if (!machine.gpus.length) return;
    const busy = gpuSeries(reel, base.spanS);
    const devices = busy.own.map((_, k) => ({ lane: `GPU ${k}`, name: machine.gpus[k] ? gpuName(machine.gpus[k], gpus[k]) : `GPU ${k}`, colour: COLOURS[(k + 4) % COLOURS.length] }));
    this.more.put(GPUS, { ...base, x: busy.x, lists: busy.own, tracks: devices }, 1);
  }

  each(act) {
    for (const group of [this.main, this.more]) group.each(act);
  }

  /** Let one lane stand out in all charts by trial; null: all alike. */
  light(lane) {
    this.each((chart) => chart.light(lane));
  }

  destroy() {
    for (const { observer } of [this.main, this.more]) observer.disconnect();
  }
}

const brief = (text) => (text.length > 28 ? `${text.slice(0, 27)}…` : text);
const highest = (lists) => lists.reduce((top, list) => list.reduce((t, v) => (v > t ? v : t), top), 0);
