// The line at the top: stream, epoch, loader, window, and the buttons that concern them all.

import { idleStream, refusal, taken, unheard } from "./acts.js";
import { icon, showIcon } from "./icons.js";
import { attribute, button, choice, grey, make, pair, put, style } from "./dom.js";
import { Weights } from "./weights.js";
import { LIVE, OVER, allLeft, clock, count, hourIn, leftOf, pace, percent, streamWord, tone } from "./words.js";

const STALE_S = 5; // twenty missed ticks: the kernel is gone, restarted, or held in C for long
const BALANCE_MS = 8000; // the stream's readings say it within a second
const PACINGS = {
  together: "together: the window keeps all trials in step",
  weights: "weights: a trial that has computed more than its weight lets other trials go first; the default weight is 1",
  free: "free: each trial runs as fast as it can until all buffered batches are in use",
};
const REPORTS_MS = 5000; // a report is made in a moment; its button comes back after this

export class Header {
  constructor(send) {
    this.send = send;
    this.name = make("h2", "tsnb-name");
    this.dot = make("span", "tsnb-dot");
    this.word = make("span", "tsnb-word");
    this.epoch = pair("pass", "tsnb-epoch");
    this.done = make("i");
    this.progress = make("span", "tsnb-progress", this.done);
    this.left = make("span", "tsnb-value");
    this.epoch.box.append(this.progress, this.left);
    this.loader = pair("loader", "tsnb-loader");
    this.window = pair("window", "tsnb-window");
    this.window.box.title = "Batches between the fastest and the slowest trial, and the maximum";
    this.all = pair("all done in", "tsnb-all");
    this.at = make("b", "tsnb-value tsnb-at");
    this.between = make("span", "tsnb-value tsnb-between");
    this.all.box.append(this.at, " ", this.between);
    this.pacing = choice("balance", PACINGS, (pacing) => this.balanced(pacing));
    this.pacing.box.title = "How trials share compute: in step (together), by weight (weights), or each as fast as it can (free)";
    this.weights = new Weights((weights) => this.balanced("weights", weights));
    this.refusal = refusal();
    this.pauseIcon = showIcon(icon(), "paused");
    this.pauses = button(this.pauseIcon, "tsnb-act tsnb-pause-all", () => this.pauseAll());
    this.whole = make("i");
    this.overall = make("span", "tsnb-progress tsnb-overall", this.whole);
    attribute(this.overall, "role", "progressbar");
    this.all.box.insertBefore(this.overall, this.all.box.firstChild);
    this.report = button("Report", "", () => this.clickedReport());
    this.report.title = "Show where the time of each trial went";
    this.stop = button("Stop stream", "tsnb-stop-stream", () => this.clicked());
    taken(this.stop, () => this.asked, () => this.calm());
    const title = make("div", "tsnb-title", this.dot, this.name, this.word);
    const actions = make("div", "tsnb-actions", this.pacing.box, this.weights.element, this.pauses, this.report, this.stop);
    this.element = make("header", "tsnb-header", title, this.epoch.box, this.loader.box, this.window.box, this.all.box, actions, this.refusal.element);
  }

  /** Divide compute in another way: what was chosen is shown at once, and what is once the stream says so. */
  balanced(pacing, weights) {
    this.asked_pacing = pacing;
    this.askedMs = Date.now();
    this.why = "";
    this.send({ op: "balance", pacing, ...(weights ? { weights } : {}) });
  }

  /** Pause all trials that run; where all are paused, let them go on. */
  pauseAll() {
    const { names, paused } = this.running;
    for (const name of names) this.send({ op: paused ? "resume" : "pause", name });
  }

  drawPauses(store, why) {
    const here = store.lanes.flatMap((lane, k) => (lane && lane.here ? [[lane.name, store.stateOf(k).state === "paused"]] : []));
    const paused = here.length > 0 && here.every(([, is]) => is), words = paused ? "Resume all" : "Pause all";
    this.running = { paused, names: here.filter(([, is]) => is === paused).map(([name]) => name) };
    showIcon(this.pauseIcon, paused ? "streaming" : "paused");
    reasoned(this.pauses, words, why || (here.length ? "" : "no trial is running"), `${words} trials of this stream`);
    attribute(this.pauses, "aria-label", this.pauses.title);
  }

  clickedReport() {
    this.send({ op: "report" });
    this.reported = Date.now();
    this.noReport = "";
    this.refusal.say("");
    grey(this.report, true);
  }

  /** The second click stops: one click too many would end every trial. */
  clicked() {
    if (this.asked) {
      this.send({ op: "stop stream" });
      this.asked = false;
      this.stopping = true;
      put(this.stop, "Stopping");
      return;
    }
    put(this.stop, "Stop for all?");
    this.asked = true;
    this.stop.focus(); // not every browser gives it to what was clicked
  }

  calm() {
    this.asked = this.stopping = false;
    this.notStopped = "";
    put(this.stop, "Stop stream");
  }

  refused(what, why) {
    if (what === "balance") {
      this.asked_pacing = null;
      this.why = `Not changed: ${why}`;
      this.weights.refused(why);
      return;
    }
    if (what === "report") {
      this.reported = 0;
      this.noReport = why;
      this.refusal.say(`No report: ${why}`);
      return;
    }
    this.calm();
    put(this.stop, "Could not stop");
    this.notStopped = why;
  }

  /** `whole`: all streams together, where this is the first line: it says when all trials of them are done. */
  draw(store, state, whole) {
    const { stream, last, can } = store, live = LIVE.has(state);
    put(this.name, stream.name || "no stream yet");
    this.dot.dataset.tone = tone(state);
    this.dot.classList.toggle("tsnb-ring", !live);
    this.dot.title = state;
    put(this.word, streamWord(state, store.endS));
    this.word.dataset.tone = tone(state);
    put(this.loader.value, OVER.has(state) ? inAll(store.reel) : live && last ? loader(stream, store.toldPerS) : "–");
    put(this.window.value, live && last ? `${last.windowFill} of ${stream.window}` : "–");
    this.pacing.box.hidden = !last;
    const pacing = (stream.pacing || "together").split(" ")[0];
    if (pacing === this.asked_pacing || Date.now() - (this.askedMs || 0) > BALANCE_MS) this.asked_pacing = null;
    const why = idleStream(store, state);
    grey(this.pacing.select, why);
    const shown = this.asked_pacing || pacing;
    if (this.pacing.select.value !== shown) this.pacing.select.value = shown;
    this.weights.draw(store, Boolean(last) && shown === "weights", why);
    attribute(this.pacing.select, "title", why ? `Not now: ${why}` : this.why || PACINGS[shown] || "");
    this.drawEpoch(stream, last, live);
    this.drawAll(whole);
    this.drawPauses(store, why);
    this.report.hidden = !can.report;
    if (!live && this.stopping) this.calm();
    const noReport = !last ? "the stream has sent no data yet" : unheard(store, state) || (Date.now() - (this.reported || 0) < REPORTS_MS ? "it is being created" : "");
    reasoned(this.report, "Report", noReport, this.noReport ? `No report: ${this.noReport}` : "Show where the time of each trial went");
    reasoned(this.stop, "Stop stream", why || (this.stopping ? "it is already stopping" : ""), this.notStopped || (this.asked ? "Click again to stop the stream for all trials" : "Stop the stream for all trials"));
  }

  drawEpoch(stream, last, live) {
    const whole = stream.epoch_batches, known = Boolean(last && whole);
    const share = known ? Math.min(1, last.published / whole) : 0;
    put(this.epoch.value, last && last.epoch >= 0 ? String(last.epoch + 1) : "–");
    style(this.done, "width", `${(share * 100).toFixed(1)}%`);
    const time = live && share < 1 && last && last.leftS < 360000 ? `, ${clock(last.leftS)} left` : "";
    put(this.left, known ? percent(share) + time : last ? `${count(last.published)} batches` : "");
  }

  drawAll(whole) {
    this.all.box.hidden = !whole || whole.recorded || OVER.has(whole.state);
    if (this.all.box.hidden) return;
    const several = whole.stores && whole.stores.length > 1, known = LIVE.has(shownState(whole)), [left, range] = known ? leftOf(whole.all) : ["", ""];
    this.all.box.classList.toggle("tsnb-unknown", !left);
    const here = whole.lanes.some((lane) => lane && lane.here); // once told it keeps its room for as long as somebody trains
    this.all.box.classList.toggle("tsnb-told", Boolean(left) || (here && this.all.box.classList.contains("tsnb-told")));
    put(this.all.value, left);
    const share = left ? shareDone(whole) : NaN;
    this.overall.hidden = !(share >= 0);
    style(this.whole, "width", `${(100 * (share || 0)).toFixed(1)}%`);
    attribute(this.overall, "aria-label", `${percent(share)} of all epochs`);
    attribute(this.overall, "aria-valuenow", Math.round(100 * (share || 0)));
    const nowMs = Date.now();
    put(this.at, left && `, at ${hourIn(whole.all.leftS, nowMs)}`);
    put(this.between, range);
    attribute(this.all.box, "title", left ? `${several ? "The trials of all streams" : "The trials"}: ${allLeft(whole.all, nowMs)}, 80% interval` : "");
  }
}

/** How much of all epochs of all trials is taken, 0 to 1; those that have ended count with what they took. */
export function shareDone(store) {
  let taken = 0, all = 0;
  store.lanes.forEach((lane, k) => {
    const { row } = lane ? store.epochsOf(k) : {};
    if (!row || !(row.epochs >= 0)) return;
    const { eta } = store.paceOf(k), whole = lane.here && eta && eta.epochs > 0 ? Math.max(eta.epochs, row.epochs) : row.epochs;
    taken += row.epochs;
    all += whole;
  });
  return all > 0 ? taken / all : NaN;
}

/** A button that says why it is grey, where it is. */
function reasoned(element, word, why, title) {
  grey(element, why);
  attribute(element, "title", why ? `${word}: not now, ${why}` : title);
}

function loader(stream, perS) {
  const workers = stream.workers === 1 ? "1 worker" : stream.workers ? `${stream.workers} workers` : "no workers";
  return `${pace(perS)} batches/s, ${workers}`;
}

/** What the loader did in all, once the stream is over. */
function inAll({ frames, last, ageS }) {
  if (!last || !ageS) return "–";
  const more = (frame, k) => (k ? Math.max(0, frame.batches - frames[k - 1].batches) : 0); // a new producer counts from 0
  const made = frames.reduce((sum, frame, k) => sum + more(frame, k), 0);
  return `${pace(made / ageS)} batches/s on average, ${count(frames[0].batches + made)} in all`;
}

/** The state to show: what the stream says, unless it is recorded, or nothing was heard for long. */
export function shownState(store) {
  const { state, recorded } = store;
  if (recorded) return "recording";
  return LIVE.has(state) && (store.lost === "gone" || store.clock() - store.heardMs > STALE_S * 1000) ? "stale" : state;
}
