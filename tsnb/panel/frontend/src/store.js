// What the front end knows of a stream: the scene (words) and the frames (numbers). One for each stream of a model, however
// many views that has; of several, `Joint` (streams.js) makes one picture. Knows no DOM.

import { Curves } from "./curves.js";
import { decode, decodeCurves, encode, encodeCurves } from "./frames.js";
import { Log } from "./log.js";
import { isEarly } from "./outcome.js";
import { Reel } from "./reel.js";
import { SHARES, timeline, whole } from "./series.js";
import { NO_ETA, STANDING, metric } from "./words.js";

export const BROKEN = "not finite"; // the kind of a mark: a number is none any more
const MARKS = 200; // the kernel keeps as many
const NEAR_S = 0.06; // times travel in float32: after a day they are right to a hundredth of a second
const STEADY = 8; // ticks over which a state that changes with every batch is named; rates look back as far
const KEPT_S = 3; // a word that changes with every batch stays so long, to be read
const PACED = new Set(["streaming", "waiting", "held back", "sets the pace"]);
const HELD = 0.1; // the share of its time that a sentence is worth, as the kernel has it
const AT_TIMES = new Set(["window-bound", "weighed"]); // sentences that say, where they name no trial as setting the pace, that each does at times
const PASSING = new Set(["streaming", "waiting", "held back", "sets the pace", "skipping", "awaits turn"]);

/** What a trial does in a time, that sums over the streams it is on. */
export const FLOWING = ["samplesPerS", "computing", "waiting", "held", "joining"];

/** A number as JSON has it: it has no words for those that are not finite. */
const number = (value) => ({ nan: NaN, inf: Infinity, "-inf": -Infinity })[value] ?? value;

/** What is asked of logged numbers, of one stream or of several alike. */
export class Numbers {
  /** How the kernel was lost, of a panel that is no recording: "gone", "silent"; empty: it was not. */
  get lost() {
    return this.pulse && !this.recorded ? this.pulse.lost : "";
  }

  /** The values of a lane's metric, oldest first, at most `most` of them. */
  metricHistory(lane, name, most = 60) {
    const values = this.curve(lane, name).map((point) => point[3]).filter(Number.isFinite);
    const step = Math.max(1, values.length / most);
    return values.length <= most ? values : Array.from({ length: most }, (_, k) => values[Math.floor((k + 1) * step) - 1]);
  }

  /** The last number that a lane has logged under a name; of one that has ended with all its digits. */
  value(lane, name) {
    const { here, last, metrics } = this.lanes[lane];
    if (!here && last && name in last) return number(last[name]);
    return metrics.includes(name) ? this.lastOf(lane, name) : undefined;
  }

  /** Since when a lane's number is none, in words: "loss became nan at batch 312"; empty: it is one. */
  brokenOf(lane, name) {
    const value = this.shown(lane, name), trial = this.lanes[lane].name;
    if (value === undefined || Number.isFinite(value)) return "";
    const told = this.marks.findLast(({ kind, name: of, text }) => kind === BROKEN && of === trial && text.startsWith(`${trial}: ${name} became `));
    return told ? told.text.slice(trial.length + 2) : `${name} is ${metric(name, value)}`;
  }

  /** The same as rows and the drawer show it: all numbers are renewed together, by `renew`, so that they can be read and agree. */
  shown(lane, name) {
    this.numbers ||= new Map();
    const key = `${lane} ${name}`;
    if (!this.numbers.has(key)) this.numbers.set(key, this.value(lane, name));
    return this.numbers.get(key);
  }

  renew() {
    this.numbers = new Map();
    this.bests = new Map();
  }

  /** As `bestOf`, of the numbers that rows show: the star stands at the best of those, and moves when they are renewed. */
  best(name) {
    this.bests ||= new Map();
    if (!this.bests.has(name)) this.bests.set(name, this.bestAmong(this.lanes.map((_, k) => k), name, (k) => this.shown(k, name)));
    return this.bests.get(name);
  }

  /** The lane with the best number under a name, of those that are shown: of equal ones one that is done, then the first by name, and one that has ended before it was done only where there is no other. */
  bestOf(name) {
    return this.bestAmong(this.lanes.map((_, k) => k), name);
  }

  bestAmong(lanes, name, valueOf = (k) => this.value(k, name)) {
    const way = this.ways[name] || 0;
    const those = lanes.map((k) => [k, this.lanes[k]]).map(([k, lane]) => [k, lane && lane.metrics.includes(name) ? valueOf(k) : NaN]).filter(([, value]) => value !== undefined && !Number.isNaN(value));
    if (!way || those.length < 2) return -1;
    const done = ([k]) => !this.lanes[k].here && this.lanes[k].end === "done", counts = those.filter(([k]) => !isEarly(this.lanes[k]));
    const sooner = ([k], [than]) => (this.lanes[k].name < this.lanes[than].name ? 1 : -1);
    return (counts.length ? counts : those).reduce((best, one) => (way * (one[1] - best[1]) || done(one) - done(best) || sooner(one, best)) > 0 ? one : best)[0];
  }
}

export class Store extends Numbers {
  /** `names`: where a panel of several streams has each trial, by name; `shared`: what it knows of trials. */
  constructor(clock = () => performance.now(), { names = null, shared } = {}) {
    super();
    this.clock = clock;
    this.names = names;
    this.log = new Log();
    this.pulse = null; // tells whether the kernel answers
    this.params = new Map(); // of this notebook's trials: name -> [[parameter, value as text], ...]
    this.changes = new Map(); // of their live values: name -> [[seconds since 1970, text], ...]
    this.sweeps = {}; // the sweep of each that is of one, by name
    this.rules = {}; // the number by which the rule of each sweep decides, by the sweep's name
    this.beside = []; // trials without a stream
    this.verdicts = {}; // why those that were pruned were, by name
    this.facts = new Map(); // what the notebook knows of the trials whose drawer is open, by name
    Object.assign(this, shared);
    this.load({}, null);
  }

  /** Replace everything: at the start, and when ticks were missed. */
  load(scene, history, curves) {
    this.n = scene.n || 0;
    this.originS = scene.origin_s || 0;
    this.states = scene.states || [];
    this.state = scene.state || "absent";
    this.recorded = Boolean(scene.recorded); // what happened at another time: no button is promised
    this.stream = scene.stream || { name: "" };
    this.say = scene.say || { kind: "starting", text: "", lead: 0, pace: null };
    this.own = []; // the lanes as the stream numbers them
    this.places = this.names ? [] : null; // where the panel has them
    this.lanes = [];
    (scene.lanes || []).forEach((lane, number) => this.put(number, lane));
    this.marks = (scene.marks || []).map(mark);
    this.gpus = scene.gpus || []; // names
    this.rule = scene.rule || ""; // the number by which the rules of its sweeps decide, as their notebook tells
    this.ways = scene.ways || {}; // which way a metric is good: 1 high, -1 low; not in it: nobody knows
    this.can = scene.can || {};
    this.lastFrames = []; // by lane, the last with it: the reel lets go of most frames, and what a trial came to must stay
    this.reel = new Reel(decode(history, this.places));
    for (const frame of this.reel.frames) this.remember(frame);
    this.curves = new Curves(decodeCurves(curves).map((curve) => ({ ...curve, lane: either(curve.lane, (lane) => this.placeAt(lane)) })));
    this.machine = this.reel.frames.reduce((found, frame) => frame.machine || found, null);
    this.paces = this.reel.frames.reduce((found, frame) => pacesAfter(found, frame.paces), []); // by lane: {stepMs, alonePerS, eta}
    this.all = this.reel.frames.reduce((found, frame) => frame.all || found, NO_ETA); // what is left of all of them
    if (scene.log) this.log.load(scene.log);
    this.heardMs = this.clock();
  }

  /** Keep what was said of a lane. */
  put(number, lane) {
    this.own[number] = lane;
    if (this.places) {
      if (!this.names.has(lane.name)) this.names.set(lane.name, this.names.size);
      this.places[number] = this.names.get(lane.name);
      while (this.lanes.length < this.places[number]) this.lanes.push(null);
    }
    const at = this.placeAt(number);
    if (this.curves && this.lanes[at] && lane.run !== this.lanes[at].run) (this.curves.beginAnew(at), delete this.paces[at]);
    this.lanes[at] = lane && lane.unknown ? null : lane;
  }

  /** Where the panel has a lane of the stream. */
  placeAt(number) {
    return this.places ? this.places[number] : number;
  }

  /** Take in a tick; false if one before it was missed and everything must be asked for again. */
  tick(content, view) {
    const follows = content.n === this.n + 1;
    this.n = content.n;
    this.heardMs = this.clock();
    if (content.rule !== undefined) this.rule = content.rule;
    for (const word of ["state", "stream", "say", "gpus", "can", "ways"]) if (content[word]) this[word] = content[word];
    if (content.origin_s) this.originS = content.origin_s;
    for (const [number, lane] of Object.entries(content.lanes || {})) this.put(Number(number), lane);
    if (content.marks) this.marks = [...this.marks, ...content.marks.map(mark)].sort((a, b) => a.t - b.t).slice(-MARKS); // some are heard of late
    for (const frame of decode(view, this.places)) {
      this.reel.add(frame);
      this.remember(frame);
      this.machine = frame.machine || this.machine;
      this.paces = pacesAfter(this.paces, frame.paces);
      this.all = frame.all || this.all;
      for (const [lane, metric, value, by, several] of frame.logged) {
        const row = frame.rows[lane] || { batches: 0, epochs: -1 }, batches = by ?? row.batches, whole = this.stream.epoch_batches;
        this.curves.add(lane, metric, [frame.t, batches, whole ? batches / whole : row.epochs], value, several);
      }
    }
    return follows;
  }

  get frames() {
    return this.reel.frames;
  }

  get last() {
    return this.reel.last;
  }

  /** Batches prepared from the slowest trial's place on. */
  get head() {
    return this.last ? this.last.rows.reduce((most, row, lane) => (this.lanes[lane] && this.lanes[lane].here && !STANDING.has(this.states[row.state]) ? Math.max(most, row.fill) : most), 0) : 0;
  }

  /** When the last frame was, seconds since 1970. */
  get endS() {
    return this.last && this.originS ? this.originS + this.last.t : 0;
  }

  /** The scene and the history as the model keeps them: a notebook that is saved with them opens as a recording. */
  snapshot() {
    const { n, originS: origin_s, states, state, stream, say, gpus, rule, ways } = this;
    const marks = this.marks.map(({ t, kind, name, text }) => [t, kind, name, text]);
    const words = { n, origin_s, states, recorded: true, saved: true, state, stream, say, lanes: this.own.slice(), marks, gpus, rule, ways, can: {} };
    const curves = this.curves.all().map((curve) => ({ ...curve, lane: either(curve.lane, (lane) => (this.places ? this.places.indexOf(lane) : lane)) }));
    return { scene: { ...words, log: this.log.snapshot() }, history: encode([...new Set([...this.frames, ...this.lastFrames.filter(Boolean)])].sort((a, b) => a.t - b.t)), curves: encodeCurves(curves) };
  }

  /** What a lane has logged under a name: [[t, batches, epochs, last, low, high, mean, values], ...], oldest first. */
  curve(lane, name) {
    const metric = this.lanes[lane] ? this.lanes[lane].metrics.indexOf(name) : -1;
    return metric < 0 ? [] : this.curves.of(lane, metric);
  }

  /** The same of the run before. */
  former(lane, name) {
    const metric = this.lanes[lane] ? this.lanes[lane].metrics.indexOf(name) : -1;
    return metric < 0 ? [] : this.curves.of(-1 - lane, metric);
  }

  lastOf(lane, name) {
    return this.curves.last(lane, this.lanes[lane].metrics.indexOf(name));
  }

  /** The store of the stream that a trial spends its time on: of one stream this one. */
  flowOf() {
    return this;
  }

  /** What its place in the stream is drawn of. */
  placeOf(lane) {
    return { row: this.lastRow(lane), head: this.head, size: Math.max(this.stream.window || 0, this.head || 0), stream: "" };
  }

  epochsOf(lane) {
    return { row: this.lastRow(lane), batches: this.stream.epoch_batches };
  }

  /** What a lane did in all: as the kernel says it once the lane has left, else as frames tell it. */
  inAll(lane) {
    return wholeOf(this.lanes[lane]) || whole(this.reel, lane);
  }

  /** What a batch costs a lane: {stepMs, alonePerS}. */
  paceOf(lane) {
    return this.paces[lane] || { stepMs: NaN, alonePerS: NaN, eta: NO_ETA };
  }

  /** Whether this is a page that was saved while the lane trained: what it did in all is not known then. */
  savedLive(lane) {
    return this.recorded && this.lanes[lane].here && !wholeOf(this.lanes[lane]);
  }

  /** A lane's life in bars (`timeline`). */
  timesOf(lane, bars) {
    const times = timesOf([[this.reel, 0]], lane, bars);
    return { ...times, share: times.share && (wholeOf(this.lanes[lane]) || times.share) };
  }

  /** A lane's state now, and for how many seconds it has been in it. */
  stateOf(lane) {
    if (!this.lanes[lane].here) return { state: pendingState(this.lanes[lane]) || this.lanes[lane].end || "gone", forS: 0 };
    const now = this.lastRow(lane);
    if (!now) return { state: "joining", forS: 0 };
    if (PASSING.has(this.states[now.state])) return { state: this.agreed(lane, this.kept(`state ${lane}`, this.mostly(lane), (word) => PASSING.has(word))), forS: 0 };
    const { paused_at: at } = this.lanes[lane]; // a page that is opened later has no frame from then
    if (this.states[now.state] === "paused" && Number.isFinite(at)) return { state: "paused", forS: this.last.t - at };
    let k = this.frames.length - 1;
    while (k > 0 && this.frames[k - 1].rows[lane] && this.frames[k - 1].rows[lane].state === now.state) k--;
    return { state: this.states[now.state] || "", forS: this.last.t - this.frames[k].t };
  }

  /** No other trial sets the pace than the sentence names, and none where it says that none waits for another: with each batch that may change. */
  agreed(lane, state) {
    const { pace, kind } = this.say, it = this.lanes[lane].name === pace;
    if ((!pace && AT_TIMES.has(kind)) || !PACED.has(state) || it === (state === "sets the pace")) return state;
    if (it) return "sets the pace";
    return this.told(lane).held >= HELD ? "held back" : "streaming";
  }

  /** A word that has changed lately, as it was before; `fits`: whether that may still be said. */
  kept(key, word, fits) {
    this.words ||= new Map();
    const t = this.last ? this.last.t : 0, before = this.words.get(key);
    if (before && before.word !== word && fits(before.word) && t >= before.t && t - before.t < KEPT_S) return before.word;
    if (!before || before.word !== word) this.words.set(key, { word, t });
    return word;
  }

  /** The state that a lane was in for most of the last ticks, so that the word agrees with the bar beside it. */
  mostly(lane) {
    const times = new Map();
    for (const { rows } of this.frames.slice(-STEADY)) {
      const state = rows[lane] && this.states[rows[lane].state];
      if (PASSING.has(state)) times.set(state, (times.get(state) || 0) + 1);
    }
    return [...times].reduce((most, next) => (next[1] >= most[1] ? next : most))[0];
  }

  /**
   * A lane's numbers when the sentence was said last: the shares of its time that are shown, so that row and sentence say
   * the same. Of one that came since, or where no sentence tells of shares: its last.
   */
  told(lane) {
    const { at } = this.say, { frames } = this;
    if (!Number.isFinite(at) || this.lanes[lane].since_s > at) return this.lastRow(lane);
    for (let k = frames.length - 1; k >= 0 && frames[k].t > at - NEAR_S; k--) {
      const row = frames[k].rows[lane];
      if (Math.abs(frames[k].t - at) < NEAR_S && row && Number.isFinite(row.computing)) return row;
    }
    return this.lastRow(lane);
  }

  /** The loader's batches a second likewise, as the header shows them. */
  get toldPerS() {
    const { say: { at }, frames, last } = this;
    for (let k = frames.length - 1; Number.isFinite(at) && k >= 0 && frames[k].t > at - NEAR_S; k--) {
      const { t, batchesPerS } = frames[k];
      if (Math.abs(t - at) < NEAR_S && Number.isFinite(batchesPerS)) return batchesPerS;
    }
    return last ? last.batchesPerS : NaN;
  }

  /** The last numbers a lane is known to have had, for rows of trials that have left. */
  lastRow(lane) {
    return this.lastFrames[lane] ? this.lastFrames[lane].rows[lane] : undefined;
  }

  remember(frame) {
    frame.rows.forEach((_, lane) => (this.lastFrames[lane] = frame));
  }
}

/** A lane's number elsewhere; that of its former run is -1 less it. */
const either = (lane, of) => (lane < 0 ? -1 - of(-1 - lane) : of(lane));

/** The state of a trial that is not attached yet: "queued"; empty: it is, or was. */
export const pendingState = ({ pending }) => (pending || "").replace(/:.*/s, "");

/** What a trial waits for, in words: "queued: it needs 2.1 GiB ...", "waits for its turn"; empty: for batches only. */
export const waitsFor = ({ here, awaits, pending }) => (here ? awaits && `waits for ${awaits}` : pending) || "";

/** A lane's life in so many bars of equal time, over the streams that it is on: [[reel, how much later its time begins], ...]. */
export function timesOf(reels, lane, bars) {
  const lives = reels.map(([reel, shift]) => [timeline(reel, lane, 1), shift]).filter(([life]) => life.bars.length);
  if (!lives.length) return { from: 0, to: 0, bars: [], share: null };
  const from = Math.min(...lives.map(([life, shift]) => life.from + shift)), to = Math.max(...lives.map(([life, shift]) => life.to + shift));
  if (reels.length === 1) return timeline(reels[0][0], lane, bars);
  const all = reels.map(([reel, shift]) => timeline(reel, lane, bars, from - shift, to - shift)).filter((life) => life.bars.length);
  const sum = (parts) => Object.fromEntries(SHARES.map((key) => [key, Math.min(1, parts.reduce((total, one) => total + ((one && one[key]) || 0), 0))]));
  const out = Array.from({ length: bars }, (_, k) => ({ here: all.some((life) => life.bars[k] && life.bars[k].here), ...sum(all.map((life) => life.bars[k])) }));
  return { from, to, bars: out, share: sum(all.map((life) => life.share)) };
}

/** {samplesPerS, computing, ...} over all the time that a lane was attached; undefined: not told. */
function wholeOf(lane) {
  if (!lane || !lane.whole) return undefined;
  const [samplesPerS, computing, waiting, held, joining, paused, timedOut] = lane.whole;
  return { samplesPerS, computing, waiting, held, joining, paused, timedOut };
}

/** The newest paces. Of a trial that stands still nothing is foretold, and it takes as many epochs all the same. */
function pacesAfter(before, now) {
  if (!now) return before;
  now.forEach(({ eta }, lane) => {
    if (!(eta.leftS >= 0) && before[lane]) eta.epochs = before[lane].eta.epochs;
  });
  return now;
}

const mark = ([t, kind, name, text]) => ({ t, kind, name, text });
