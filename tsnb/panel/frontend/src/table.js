// One row a trial. Columns have fixed widths, so nothing moves when numbers change or a trial joins.

import { attribute, make, put, style } from "./dom.js";
import { LIVE, colour, consumerState, count, metric, percent, progress } from "./words.js";

const METRIC_COLUMNS = 2;
const MOST_ROWS = 12; // trials that left give way first
const MOST_SLOTS = 16; // a wider window is drawn as one bar

const COLUMNS = [
  ["trial", "tsnb-c-name"], ["state", "tsnb-c-state"], ["buffer", "tsnb-c-buffer"], ["lag", "tsnb-c-lag tsnb-n"],
  ["samples/s", "tsnb-c-rate tsnb-n"], ["where its time goes", "tsnb-c-time"], ["epoch", "tsnb-c-epoch tsnb-n"],
  ["", "tsnb-c-metric tsnb-n"], ["", "tsnb-c-metric tsnb-n"], ["", "tsnb-c-action"],
];

export class Table {
  constructor(send, choose) {
    Object.assign(this, { send, choose });
    this.rows = new Map();
    this.head = COLUMNS.map(([label, name]) => make("th", name, label));
    this.head.forEach((cell) => (cell.scope = "col"));
    this.head[this.head.length - 1].append(make("span", "tsnb-unseen", "actions"));
    this.table = make("table", "tsnb-table", make("thead", "", make("tr", "", ...this.head)));
    this.table.setAttribute("aria-label", "Trials on this stream");
    this.empty = make("p", "tsnb-empty");
    this.element = make("div", "tsnb-rows", this.table, this.empty);
  }

  draw(store, state) {
    const live = LIVE.has(state), metrics = metricNames(store.lanes);
    metrics.forEach((name, k) => put(this.head[7 + k], name));
    const shown = new Set(visible(store.lanes));
    for (const [lane, row] of this.rows) if (!shown.has(lane)) this.drop(lane, row);
    for (const lane of shown) {
      if (!this.rows.has(lane)) this.add(lane, store.lanes[lane].name);
      this.rows.get(lane).draw(store, live, metrics);
    }
    this.empty.hidden = shown.size > 0;
    put(this.empty, live ? "No trial is attached yet. In a trial's cell: for batch in tsnb.attach(): …" : "No trial yet.");
  }

  refused(name, why) {
    for (const row of this.rows.values()) if (row.name === name) row.refused(why);
  }

  add(lane, name) {
    const row = new Row(lane, name, this.send, this.choose);
    this.rows.set(lane, row);
    const after = [...this.rows.keys()].filter((other) => other > lane).sort((a, b) => a - b)[0];
    this.table.insertBefore(row.element, after === undefined ? null : this.rows.get(after).element);
  }

  drop(lane, row) {
    row.element.remove();
    this.rows.delete(lane);
  }
}

/** The lanes that get a row: all that are here, then those that left last. */
export function visible(lanes) {
  const numbers = lanes.map((_, lane) => lane).filter((lane) => lanes[lane]);
  const here = numbers.filter((lane) => lanes[lane].here);
  const left = numbers.filter((lane) => !lanes[lane].here).sort((a, b) => lanes[b].since_s - lanes[a].since_s);
  return [...here, ...left.slice(0, Math.max(0, MOST_ROWS - here.length))].sort((a, b) => a - b);
}

/** The names of the logged numbers that get a column: losses, then accuracies, then the rest as they came. */
export function metricNames(lanes) {
  const names = [...new Set(lanes.flatMap((lane) => (lane ? lane.metrics : [])))];
  const rank = (name) => (/loss/i.test(name) ? 0 : /acc/i.test(name) ? 1 : 2);
  return names.sort((a, b) => rank(a) - rank(b)).slice(0, METRIC_COLUMNS);
}

class Row {
  constructor(lane, name, send, choose) {
    this.lane = lane;
    this.name = name;
    const swatch = make("span", "tsnb-swatch");
    this.cells = COLUMNS.map(([, className], k) => make(k ? "td" : "th", className));
    const [title, , buffer, , , time, , , , action] = this.cells;
    title.scope = "row";
    title.append(swatch, make("span", "tsnb-trial", name));
    title.title = name;
    this.slots = make("div", "tsnb-slots");
    buffer.append(this.slots);
    this.shares = ["computing", "waiting", "held"].map((part) => make("i", `tsnb-${part}`));
    this.bar = make("div", "tsnb-bar", ...this.shares);
    this.bar.setAttribute("role", "img");
    time.append(this.bar);
    this.metrics = [7, 8].map((k) => make("span", "", ""));
    this.curve = curve();
    this.cells[7].append(make("div", "tsnb-metric", this.curve.line, this.metrics[0]));
    this.cells[8].append(this.metrics[1]);
    this.stop = make("button", "tsnb-button tsnb-stop", make("span", "tsnb-square"));
    this.stop.type = "button";
    attribute(this.stop, "aria-label", `Stop ${name}`);
    this.stop.title = `Stop ${name}`;
    this.stop.onclick = () => this.clicked(send);
    this.log = make("button", "tsnb-button tsnb-open-log", make("span", "tsnb-rules"));
    this.log.type = "button";
    this.log.title = `Log of ${name}`;
    attribute(this.log, "aria-label", this.log.title);
    this.log.onclick = () => choose(this.log.getAttribute("aria-pressed") === "true" ? null : name);
    action.append(this.stop, this.log);
    this.detail = make("td", "tsnb-detail tsnb-soft");
    this.detail.colSpan = COLUMNS.length - 3; // it shows in narrow columns only, where three are hidden
    this.element = make("tbody", "", make("tr", "", ...this.cells), make("tr", "tsnb-second", this.detail));
    style(this.element, "--tsnb-lane", colour(lane));
  }

  clicked(send) {
    send({ op: "stop", name: this.name });
    this.stopping = Date.now();
    this.stop.disabled = true;
    this.stop.title = `Stopping ${this.name}`;
  }

  refused(why) {
    this.stopping = 0;
    this.stop.title = `Could not stop ${this.name}: ${why}`;
    attribute(this.stop, "aria-label", this.stop.title);
  }

  draw(store, live, metrics) {
    const { lanes, last, stream } = store, lane = lanes[this.lane];
    const here = live && lane.here;
    const row = (last && last.rows[this.lane]) || store.lastRow(this.lane);
    const now = here && row ? row : { fill: 0, lag: NaN, samplesPerS: NaN, computing: 0, waiting: 0, held: 0 };
    const { state, forS } = store.stateOf(this.lane);
    const words = consumerState(state, forS, live);
    this.element.classList.toggle("tsnb-off", !here);
    put(this.cells[1], words.label);
    this.cells[1].dataset.tone = words.tone;
    this.drawSlots(now.fill, stream.window || 0);
    put(this.cells[3], count(now.lag));
    put(this.cells[4], count(now.samplesPerS));
    this.drawShares(now);
    const epoch = progress(row, stream.epoch_batches);
    put(this.cells[6], epoch);
    this.drawMetrics(store, lane, row, metrics, epoch);
    const waits = this.stopping && Date.now() - this.stopping < 15000;
    this.stop.disabled = !here || Boolean(waits);
    this.log.hidden = !store.log.can;
    attribute(this.log, "aria-pressed", store.log.shown && store.log.name === this.name);
  }

  drawSlots(fill, size) {
    const boxes = size > MOST_SLOTS || !size ? 1 : size;
    if (this.slots.children.length !== boxes) {
      this.slots.replaceChildren(...Array.from({ length: boxes }, () => make("i")));
      this.slots.classList.toggle("tsnb-one", boxes === 1);
    }
    const whole = Math.min(1, size ? fill / size : 0);
    [...this.slots.children].forEach((box, k) => {
      const level = boxes === 1 ? whole : k < fill ? 1 : 0;
      style(box, "--tsnb-level", String(level));
    });
    this.slots.title = `${count(fill)} of ${size} batches ready for ${this.name}`;
  }

  drawShares(row) {
    const parts = [row.computing, row.waiting, row.held].map((share) => share || 0);
    this.shares.forEach((part, k) => style(part, "width", `${(parts[k] * 100).toFixed(1)}%`));
    const words = `computing ${percent(parts[0])}, waiting for data ${percent(parts[1])}, held back ${percent(parts[2])}`;
    attribute(this.bar, "aria-label", words);
    this.bar.title = words;
  }

  drawMetrics(store, lane, row, metrics, epoch) {
    const value = (name) => (row && lane.metrics.includes(name) ? row.metrics[lane.metrics.indexOf(name)] : NaN);
    this.metrics.forEach((cell, k) => put(cell, metrics[k] ? metric(metrics[k], value(metrics[k])) : ""));
    const first = lane.metrics.indexOf(metrics[0]);
    if (first >= 0 && this.due()) attribute(this.curve.path, "points", spark(store.metricHistory(this.lane, first)));
    const all = lane.metrics.slice(0, 4).map((name) => `${name} ${metric(name, value(name))}`);
    put(this.detail, [`epoch ${epoch}`, ...all].join("   "));
    this.cells[7].title = this.cells[8].title = lane.metrics.map((name) => `${name} ${metric(name, value(name))}`).join("\n");
  }

  /** A small curve need not be redrawn more than once a second. */
  due() {
    const now = Date.now();
    if (now - (this.drawnMs || 0) < 1000) return false;
    this.drawnMs = now;
    return true;
  }
}

function curve() {
  const [line, path] = ["svg", "polyline"].map((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));
  attribute(line, "class", "tsnb-spark");
  attribute(line, "viewBox", "0 0 56 18");
  attribute(line, "aria-hidden", "true");
  line.append(path);
  return { line, path };
}

/** The points of a curve in a box of 56 by 18. */
export function spark(values) {
  if (values.length < 2) return "";
  const low = Math.min(...values), height = Math.max(...values) - low || 1;
  const point = (v, k) => `${((k * 54) / (values.length - 1) + 1).toFixed(1)},${(16.5 - ((v - low) / height) * 15).toFixed(1)}`;
  return values.map(point).join(" ");
}
