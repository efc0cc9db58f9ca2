// A trial's row: what it does, where its time goes, what it logged, and its buttons.

import { Act, PauseAct, idle, square, unheard } from "./acts.js";
import { attribute, button, grey, make, put, style, svgNode } from "./dom.js";
import { icon, showIcon } from "./icons.js";
import { Place } from "./place.js";
import { shape } from "./shapes.js";
import { waitsFor } from "./store.js";
import { paint } from "./theme.js";
import { OVER, STANDING, consumerState, count, leftWords, metric, ofAll, parameter, percent, progress, spentWords } from "./words.js";

export const METRIC_COLUMNS = 2;
export const NARROW = 4; // columns that a narrow panel hides

export const COLUMNS = [
  ["trial", "tsnb-c-name"], ["state", "tsnb-c-state"], ["place in the stream", "tsnb-c-place"], ["samples/s", "tsnb-c-rate tsnb-n"], ["where its time goes", "tsnb-c-time"], ["epoch", "tsnb-c-epoch tsnb-n"],
  ["", "tsnb-c-metric tsnb-n"], ["", "tsnb-c-metric tsnb-n"], ["", "tsnb-c-action"],
];

const TOLD_LETTERS = 24; // of a parameter in the line below a narrow row, which has room

const CELL_LETTERS = 12; // in a column, which cuts what it has no room for

export const PARAM_COLUMNS = 3; // at most, on a wide page

export class Row {
  constructor(lane, name, send, choose, open, change = () => {}) {
    Object.assign(this, { lane, name, params: [] });
    this.cells = COLUMNS.map(([, className], k) => make(k ? "td" : "th", className));
    const [title, state, where, , time, , , , action] = this.cells;
    title.scope = "row";
    title.append((this.eye = button(make("span", "tsnb-mark", shape(lane)), "tsnb-eye", () => change(name, "hide"))), (this.open = button(name, "tsnb-trial tsnb-open", () => open(name))));
    title.append((this.part = make("div", "tsnb-below")));
    title.title = name;
    attribute(this.open, "aria-expanded", false);
    this.icon = icon();
    this.state = make("span");
    state.append(this.icon, this.state);
    this.place = new Place();
    where.append(this.place.element);
    this.shares = ["computing", "waiting", "held", "joining", "paused", "parked"].map((part) => make("i", `tsnb-${part}`));
    this.bar = make("div", "tsnb-bar", ...this.shares);
    attribute(this.bar, "role", "img");
    this.share = make("span");
    this.most = make("span");
    time.append(this.bar, make("div", "tsnb-below tsnb-most", this.share, " ", this.most));
    this.epoch = make("span");
    this.left = make("div", "tsnb-below");
    this.done = make("i");
    this.progress = make("div", "tsnb-progress", this.done);
    this.cells[5].append(this.epoch, this.progress, this.left);
    this.metrics = [make("span"), make("span")];
    this.curve = svgNode("polyline");
    const small = svgNode("svg", { class: "tsnb-spark", viewBox: "0 0 56 18", "aria-hidden": "true" }, this.curve);
    this.cells[6].append(make("div", "tsnb-metric", small, this.metrics[0]));
    this.cells[7].append(this.metrics[1]);
    this.stop = new Act("stop", "Stop", square(), send, { name, asks: true, className: "tsnb-act" });
    this.pause = new PauseAct(send, { name });
    this.log = button(make("span", "tsnb-rules"), "tsnb-act tsnb-open-log", () => choose(this.log.getAttribute("aria-pressed") === "true" ? null : name));
    this.log.title = `Log of ${name}`;
    attribute(this.log, "aria-label", this.log.title);
    this.more = button("+", "tsnb-act tsnb-more-epochs", () => change(name, "epochs"));
    this.again = new Act("rerun", "Run again", showIcon(icon(), "again"), send, { name, asks: true, className: "tsnb-act" });
    action.append(this.pause.element, this.stop.element, this.more, this.again.element, this.log);
    this.detail = make("span");
    this.detailState = make("span", "tsnb-detail-state"); // where even its column has no room
    const detail = make("td", "tsnb-detail tsnb-soft", this.detailState, this.detail);
    detail.colSpan = COLUMNS.length - NARROW;
    this.element = make("tbody", "", make("tr", "", ...this.cells), make("tr", "tsnb-second", detail));
    style(this.element, "--tsnb-lane", paint(lane));
  }

  /** Show these parameters: [[name, value], ...]; their columns stand behind its name. */
  tell(params) {
    while (this.params.length > params.length) this.params.pop().remove();
    while (this.params.length < params.length) {
      const cell = make("td", paramClass(this.params.length));
      (this.params[this.params.length - 1] || this.cells[0]).after(cell);
      this.params.push(cell);
    }
    this.params.forEach((cell, k) => {
      const [name, value, brief] = params[k];
      put(cell, parameter(value, brief, CELL_LETTERS));
      attribute(cell, "title", value === undefined ? `${name}: not a parameter of this trial` : `${name} ${value}`);
    });
    this.told = params.filter(([, value]) => value !== undefined).map(([name, value]) => `${name} ${parameter(value, undefined, TOLD_LETTERS)}`);
  }

  /** Show its name in short; who hears or points has all of it. */
  call(short) {
    put(this.open, short);
    if (short === this.name) this.open.removeAttribute("aria-label");
    else attribute(this.open, "aria-label", this.name);
  }

  refused(what, why) {
    if (what === "stop") this.stop.refused(why);
    if (what === "rerun") this.again.refused(why);
    if (what === this.pause.op) this.pause.refused(why);
  }

  /** `fresh`: whether its metrics are drawn anew: all rows' at once, so that the star stands at the best that is shown. */
  draw(store, state, metrics, fresh, hidden = []) {
    const { lanes, log } = store, lane = lanes[this.lane], over = OVER.has(state);
    const row = store.lastRow(this.lane);
    this.drawNow(store, state, row, over);
    this.drawEpochs(store, lane, over);
    if (fresh || !this.drawn) this.drawMetrics(store, lane, metrics);
    this.drawn = true;
    this.drawDetail(Boolean(lane.pending));
    const away = hidden.includes(this.name), words = `${away ? "Show" : "Hide"} ${this.name} in the charts`;
    this.element.classList.toggle("tsnb-unseen-curve", away);
    attribute(this.eye, "title", words);
    attribute(this.eye, "aria-label", words);
    const why = idle(store, state, this.lane);
    this.stop.draw(idle(store, state, this.lane, true));
    this.pause.drawFor(store.stateOf(this.lane).state === "paused", why, store.stream.unrepeatable);
    // of one that has ended, what can be done next
    const ended = Boolean(lane.end) && !lane.here && !lane.pending, next = ended && log.can;
    const { activeElement } = document, works = this.element.contains(activeElement);
    this.more.hidden = this.again.element.hidden = !next;
    if (next) {
      const unasked = unheard(store, state), words = `More epochs for ${this.name}`;
      this.again.draw(unasked);
      grey(this.more, unasked);
      attribute(this.more, "title", unasked ? `${words}: not now, ${unasked}` : `${words}…`);
      attribute(this.more, "aria-label", this.more.title);
    }
    this.pause.element.hidden = this.stop.element.hidden = next;
    this.log.hidden = !log.can;
    if (works && activeElement.hidden) this.open.focus({ preventScroll: true }); // who works by the keyboard stays in the row
    attribute(this.log, "aria-pressed", log.shown && log.name === this.name);
  }

  /** Epochs that it has taken, of how many, as a bar too; and what is left of them. */
  drawEpochs(store, lane, over) {
    const { row, batches } = store.epochsOf(this.lane), { eta } = store.paceOf(this.lane), taken = progress(row, batches), goes = lane.here && !over;
    const left = goes ? leftWords(eta) : "", words = ofAll(taken, goes ? eta.epochs : 0), known = words !== taken;
    put(this.epoch, words);
    put(this.left, left);
    this.progress.classList.toggle("tsnb-unknown", !known);
    style(this.done, "width", `${known ? (100 * Number(taken) / eta.epochs).toFixed(1) : 0}%`);
    attribute(this.cells[5], "title", left.startsWith("ends") ? `its epoch ${left}; the total is unknown without tsnb.epochs(n)` : left && `epoch ${words}, ${left}`);
  }

  /** What it does now; of a stream that is over, what it did in all. */
  drawNow(store, state, row, over) {
    const { lanes } = store, { here, pending } = lanes[this.lane], now = store.stateOf(this.lane);
    const words = consumerState(now.state, now.forS, !over || state === "recording");
    this.element.classList.toggle("tsnb-off", over ? state !== "recording" : !here && !pending);
    put(this.state, words.label);
    showIcon(this.icon, words.label === "ended" ? "left" : now.state === "gone" ? "left" : now.state);
    const { error, part } = lanes[this.lane], waits = waitsFor(lanes[this.lane]), failed = !here && error ? `${words.label}: ${error}` : "";
    const verdict = !here && store.verdicts[this.name] ? `${words.label}: ${store.verdicts[this.name]}` : "";
    attribute(this.cells[1], "title", failed || verdict || waits || words.label);
    put(this.part, part || "");
    this.part.hidden = !part;
    attribute(this.cells[0], "title", part ? `${this.name}: ${part}` : this.name);
    const alone = Boolean(failed) && !["stopped", "pruned"].includes(now.state); // its error has a line of its own
    put(this.detailState, alone ? error : `${failed || pending || words.label}   `);
    this.element.classList.toggle("tsnb-failed", alone);
    this.element.classList.toggle("tsnb-pending", Boolean(pending));
    this.cells[1].dataset.tone = this.detailState.dataset.tone = words.tone;
    const nothing = { fill: 0, lag: NaN, samplesPerS: NaN, computing: NaN, waiting: NaN, held: NaN };
    const shown = here && row && (!over || state === "recording") ? row : nothing;
    const ended = (!here && !pending) || (over && !(shown !== nothing && store.savedLive(this.lane))); // else it is as it was when the page was saved
    const spent = ended ? this.inAll(store) || nothing : shown;
    const told = ended || shown === nothing || STANDING.has(now.state) ? spent : store.told(this.lane);
    const place = shown === nothing ? null : store.placeOf(this.lane);
    const somewhere = place && place.row && Number.isFinite(place.row.lag) && !STANDING.has(now.state);
    this.place.draw(somewhere ? place.row : null, somewhere ? place.head : 0, somewhere ? place.size : 0, this.name, somewhere ? place.stream : "");
    put(this.cells[3], count(spent.samplesPerS));
    this.cells[3].title = ended ? "samples per second of the time attached" : "samples per second, over the last seconds";
    this.drawShares(told, ended);
  }

  /** It changes no more once the trial has left, or the stream is over. */
  inAll(store) {
    const lane = store.lanes[this.lane], at = lane.here ? store.n : lane;
    if (this.summedAt !== at) Object.assign(this, { summedAt: at, sums: store.inAll(this.lane) });
    return this.sums;
  }

  /** Whether its bar has this part. */
  spends(part) {
    return (this.parts || {})[part] >= 0.005;
  }

  drawShares(row, ended) {
    const parts = [row.computing, row.waiting, row.held, row.joining, row.paused, row.timedOut].map((share) => share || 0);
    this.parts = { joining: parts[3], paused: parts[4], parked: parts[5] };
    const [paused, timedOut] = parts.slice(4), active = Math.max(0, 1 - paused - timedOut);
    this.shares.forEach((part, k) => style(part, "width", `${(100 * (k < 4 ? active * parts[k] : parts[k])).toFixed(1)}%`));
    const words = spentWords(row);
    attribute(this.bar, "aria-label", words);
    this.bar.title = !Number.isFinite(row.computing) ? words : `${words}; ${ended ? "of the time attached" : "of the last seconds"}${paused || timedOut ? "; other shares are of the rest" : ""}`;
    const named = [["computing", parts[0]], ["waiting", parts[1]], ["held back", parts[2]], ["joining", parts[3]], ["paused", paused], ["timed out", timedOut]];
    const [most, share] = named.reduce((a, b) => (b[1] > a[1] ? b : a));
    put(this.share, share > 0 ? percent(share) : "");
    put(this.most, share > 0 ? most : "");
  }

  drawMetrics(store, lane, metrics) {
    const best = (name) => store.best(name);
    const value = (name) => store.shown(this.lane, name);
    this.metrics.forEach((cell, k) => {
      put(cell, metrics[k] ? metric(metrics[k], value(metrics[k])) : "");
      cell.classList.toggle("tsnb-best", best(metrics[k]) === this.lane);
      cell.classList.toggle("tsnb-broken", Boolean(store.brokenOf(this.lane, metrics[k])));
    });
    if (lane.metrics.includes(metrics[0]) && this.due()) attribute(this.curve, "points", spark(store.metricHistory(this.lane, metrics[0])));
    this.numbers = lane.metrics.slice(0, 4).map((name) => store.brokenOf(this.lane, name) || `${best(name) === this.lane ? "★ " : ""}${name} ${metric(name, value(name))}`);
    this.cells[6].title = this.cells[7].title = lane.metrics.map((name) => store.brokenOf(this.lane, name) || `${name} ${metric(name, value(name))}${best(name) === this.lane ? " (best)" : ""}`).join("\n");
  }

  /** The line below a narrow row: what wide rows have in columns, as new as there, so that it agrees with header and strip. */
  drawDetail(pending) {
    if (pending) return this.detailOf(this.told || []);
    const rate = this.cells[3].textContent, left = this.left.textContent;
    this.detailOf([...(this.told || []), rate === "–" ? "" : `${rate} samples/s`, `epoch ${this.epoch.textContent}`, left.endsWith("left") ? left : "", ...this.numbers].filter(Boolean));
  }

  /** Each part is whole in its line, with room between them. */
  detailOf(parts) {
    const words = parts.join("   ");
    if (words === this.detailed) return;
    this.detailed = words;
    while (this.detail.childNodes.length > 2 * parts.length) this.detail.lastChild.remove();
    while (this.detail.childNodes.length < 2 * parts.length) this.detail.append(make("span", "tsnb-pair"), "   ");
    parts.forEach((part, k) => put(this.detail.childNodes[2 * k], part));
  }

  /** A small curve need not be redrawn more than once a second. */
  due() {
    const now = Date.now();
    if (now - (this.drawnMs || 0) < 1000) return false;
    this.drawnMs = now;
    return true;
  }
}

/** The class of the k-th column of parameters: a narrower page has fewer. */
export const paramClass = (k) => `tsnb-c-param tsnb-c-param-${k + 1} tsnb-n`;

/** The points of a curve in a box of 56 by 18. */
export function spark(values) {
  if (values.length < 2) return "";
  const low = Math.min(...values), height = Math.max(...values) - low || 1;
  const point = (v, k) => `${((k * 54) / (values.length - 1) + 1).toFixed(1)},${(16.5 - ((v - low) / height) * 15).toFixed(1)}`;
  return values.map(point).join(" ");
}
