// The line at the top (stream, epoch, loader, window), the sentence below it, and the footer (arena).

import { make, put, style } from "./dom.js";
import { LIVE, clock, colour, count, mebibytes, pace, percent, sentence, streamWord, tone } from "./words.js";

const STALE_S = 5; // twenty missed ticks: the kernel is gone, restarted, or held in C for long

/** label and value, as in "loader 9.6 batches/s" */
function pair(label, className) {
  const value = make("b", "tsnb-value");
  const box = make("div", `tsnb-pair ${className || ""}`, make("span", "tsnb-soft", label), value);
  return { box, value };
}

export class Header {
  constructor(send) {
    this.name = make("h2", "tsnb-name");
    this.dot = make("span", "tsnb-dot");
    this.epoch = pair("epoch", "tsnb-epoch");
    this.done = make("i");
    this.progress = make("span", "tsnb-progress", this.done);
    this.left = make("span", "tsnb-value");
    this.epoch.box.append(this.progress, this.left);
    this.loader = pair("loader");
    this.window = pair("window");
    this.stop = make("button", "tsnb-button tsnb-stop-stream", "Stop stream");
    this.stop.type = "button";
    this.stop.onclick = () => this.clicked(send);
    this.word = make("span", "tsnb-word");
    const title = make("div", "tsnb-title", this.dot, this.name, this.word);
    this.element = make("header", "tsnb-header", title, this.epoch.box, this.loader.box, this.window.box, this.stop);
  }

  /** The second click within four seconds stops: one click too many would end every trial. */
  clicked(send) {
    if (this.asked) {
      send({ op: "stop stream" });
      clearTimeout(this.asked);
      this.asked = null;
      this.stopping = true;
      put(this.stop, "Stopping");
      return;
    }
    put(this.stop, "Stop for all?");
    this.asked = setTimeout(() => this.calm(), 4000);
  }

  calm() {
    this.asked = null;
    this.stopping = false;
    put(this.stop, "Stop stream");
  }

  draw(store, state) {
    const { stream, last } = store, live = LIVE.has(state);
    put(this.name, stream.name || "no stream yet");
    this.dot.dataset.tone = tone(state);
    this.dot.title = state;
    put(this.word, streamWord(state));
    this.word.dataset.tone = tone(state);
    put(this.loader.value, loader(stream, live && last));
    put(this.window.value, live && last ? `${last.windowFill} of ${stream.window}` : "–");
    this.drawEpoch(stream, last, live);
    this.stop.disabled = !live || state === "stopping" || Boolean(this.stopping);
    if (!live && this.stopping) this.calm();
  }

  drawEpoch(stream, last, live) {
    const whole = stream.epoch_batches, known = Boolean(last && whole);
    const share = known ? Math.min(1, last.published / whole) : 0;
    put(this.epoch.value, last && last.epoch >= 0 ? String(last.epoch + 1) : "–");
    style(this.done, "width", `${(share * 100).toFixed(1)}%`);
    const remaining = known && live && last.batchesPerS > 0 ? (whole - last.published) / last.batchesPerS : NaN;
    const time = share < 1 && remaining < 360000 ? `, ${clock(remaining)} left` : "";
    put(this.left, known ? percent(share) + time : last ? `${count(last.published)} batches` : "");
  }
}

function loader(stream, last) {
  if (!last) return "–";
  const workers = stream.workers === 1 ? "1 worker" : stream.workers ? `${stream.workers} workers` : "no workers";
  return `${pace(last.batchesPerS)} batches/s, ${workers}`;
}

/**
 * The one plain sentence. A screen reader speaks it when it says something else, not whenever its numbers change:
 * so the live region is a hidden copy.
 */
export class Sentence {
  constructor() {
    this.strong = make("b");
    this.rest = make("span");
    this.element = make("p", "tsnb-say", make("span", "", this.strong, this.rest)); // one child: it is a grid
    this.spoken = make("span", "tsnb-unseen");
    this.spoken.setAttribute("role", "status");
    this.element.append(this.spoken);
  }

  draw(store, state) {
    const { say, lanes } = store;
    const stale = state === "stale";
    const silent = clock((store.clock() - store.heardMs) / 1000);
    const words = stale ? `No news for ${silent}: the notebook's kernel is busy, restarted or gone.` : say.text;
    const [first, rest] = sentence(words || "The stream is starting.");
    put(this.strong, first);
    put(this.rest, rest);
    const turn = [state === "stale", say.kind, say.pace].join();
    if (turn !== this.turn) put(this.spoken, first + rest);
    this.turn = turn;
    const slowest = lanes.findIndex((lane) => lane && lane.name === say.pace);
    const bad = state === "failed" || say.kind === "failed", limit = say.kind === "loader-bound";
    const edge = stale ? "warn" : bad ? "bad" : limit ? "limit" : "soft";
    this.element.dataset.tone = edge;
    style(this.element, "--tsnb-edge", slowest >= 0 && !stale ? colour(slowest) : "");
  }
}

export class Footer {
  constructor() {
    this.arena = pair("arena");
    this.batches = pair("batches");
    this.element = make("footer", "tsnb-footer", this.arena.box, this.batches.box);
    this.arena.box.title = "Shared memory that holds the loader's batches, and how many of its slots are in use";
    this.batches.box.title = "Batches prepared since the start; each is written once, however many trials read it";
  }

  draw(store, state) {
    const { stream, last } = store;
    put(this.arena.value, last && LIVE.has(state) ? `${mebibytes(last.touchedMiB)}, ${last.slotsUsed} of ${stream.slots} slots` : "–");
    const copied = last && last.copied ? `, ${percent(last.copied / last.batches)} copied` : "";
    put(this.batches.value, last ? `${count(last.batches)} prepared once${copied}` : "–");
  }
}

/** The state to show: what the stream says, unless nothing was heard for long. */
export function shownState(store) {
  const { state } = store;
  return LIVE.has(state) && store.clock() - store.heardMs > STALE_S * 1000 ? "stale" : state;
}
