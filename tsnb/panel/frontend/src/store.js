// What the front end knows of the stream: the scene (words) and the frames (numbers). One per model, however many
// views it has. Knows no DOM.

import { decode, encode } from "./frames.js";
import { Log } from "./log.js";

const MAX_FRAMES = 2400; // ten minutes; the kernel keeps as many
const BREAK_S = 3; // a longer silence is drawn as a gap, not as a line across it
const STEADY = 8; // ticks over which a state that changes with every batch is named; rates look back as far
const PASSING = new Set(["streaming", "waiting", "held back", "sets the pace", "skipping"]);
const CALM = 4; // ticks over which a lag is averaged in the chart: it moves by whole batches, several times a second

export class Store {
  constructor(clock = () => performance.now()) {
    this.clock = clock;
    this.log = new Log();
    this.load({}, null);
  }

  /** Replace everything: at the start, and when ticks were missed. */
  load(scene, history) {
    this.n = scene.n || 0;
    this.originS = scene.origin_s || 0;
    this.states = scene.states || [];
    this.state = scene.state || "absent";
    this.stream = scene.stream || { name: "" };
    this.say = scene.say || { kind: "starting", text: "", pace: null };
    this.lanes = scene.lanes ? scene.lanes.slice() : [];
    this.frames = decode(history);
    if (scene.log) this.log.load(scene.log);
    this.heardMs = this.clock();
  }

  /** Take in a tick; false if one before it was missed and everything must be asked for again. */
  tick(content, view) {
    const follows = content.n === this.n + 1;
    this.n = content.n;
    this.heardMs = this.clock();
    if (content.state) this.state = content.state;
    if (content.stream) this.stream = content.stream;
    if (content.say) this.say = content.say;
    for (const [number, lane] of Object.entries(content.lanes || {})) this.lanes[number] = lane;
    this.frames.push(...decode(view));
    if (this.frames.length > MAX_FRAMES) this.frames.splice(0, this.frames.length - MAX_FRAMES);
    return follows;
  }

  get last() {
    return this.frames[this.frames.length - 1];
  }

  /** Seconds from the first frame that is kept to the last. */
  get ageS() {
    return this.frames.length ? this.last.t - this.frames[0].t : 0;
  }

  /** The scene and the history as the model keeps them. */
  snapshot() {
    const { n, originS: origin_s, states, state, stream, say, lanes } = this;
    return { scene: { n, origin_s, states, state, stream, say, lanes: lanes.slice(), log: this.log.snapshot() }, history: encode(this.frames) };
  }

  /**
   * The last `spanS` seconds for the charts. x: seconds before the last frame (<= 0). lag, rate: one list a lane,
   * null where unknown. share: cumulative share of compute, lane 0 at the bottom. own: each lane's own share.
   */
  series(spanS) {
    const lanes = this.lanes.length, end = this.last ? this.last.t : 0;
    const lists = () => Array.from({ length: lanes }, () => []);
    const out = { x: [], lag: lists(), rate: lists(), share: lists(), own: lists() };
    let before = null;
    for (let k = firstSince(this.frames, end - spanS - 1); k < this.frames.length; k++) {
      const frame = this.frames[k];
      if (before !== null && frame.t - before > BREAK_S) this.put(out, before + 0.01 - end, { rows: [] }, lanes);
      this.put(out, frame.t - end, frame, lanes);
      before = frame.t;
    }
    out.lag = out.lag.map(calm);
    return out;
  }

  put(out, x, { rows }, lanes) {
    out.x.push(x);
    let total = 0, sum = 0;
    for (let i = 0; i < lanes; i++) total += (rows[i] && rows[i].computing) || 0;
    for (let i = 0; i < lanes; i++) {
      const row = rows[i];
      out.lag[i].push(row ? row.lag : null);
      out.rate[i].push(row && Number.isFinite(row.samplesPerS) ? row.samplesPerS : null);
      const own = total > 0 ? ((row && row.computing) || 0) / total : null;
      sum += own || 0;
      out.own[i].push(own);
      out.share[i].push(own === null ? null : sum);
    }
  }

  /** The values that a lane's metric has taken, oldest first, at most `most` of them. */
  metricHistory(lane, index, most = 60) {
    const values = [];
    let before = NaN;
    for (const { rows } of this.frames) {
      const value = rows[lane] ? rows[lane].metrics[index] : NaN;
      if (Number.isFinite(value) && value !== before) values.push((before = value));
    }
    const step = Math.max(1, values.length / most);
    return values.length <= most ? values : Array.from({ length: most }, (_, k) => values[Math.floor((k + 1) * step) - 1]);
  }

  /** A lane's state now, and for how many seconds it has been in it. */
  stateOf(lane) {
    if (!this.lanes[lane].here) return { state: "gone", forS: 0 };
    const now = this.lastRow(lane);
    if (!now) return { state: "joining", forS: 0 };
    if (PASSING.has(this.states[now.state])) return { state: this.mostly(lane), forS: 0 };
    let k = this.frames.length - 1;
    while (k > 0 && this.frames[k - 1].rows[lane] && this.frames[k - 1].rows[lane].state === now.state) k--;
    return { state: this.states[now.state] || "", forS: this.last.t - this.frames[k].t };
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

  /** The last numbers a lane is known to have had, for rows of trials that have left. */
  lastRow(lane) {
    for (let k = this.frames.length - 1; k >= 0; k--) if (this.frames[k].rows[lane]) return this.frames[k].rows[lane];
    return undefined;
  }
}

/** The mean over the last ticks; unknown stays unknown. */
function calm(values) {
  return values.map((value, k) => {
    if (value === null) return null;
    const near = values.slice(Math.max(0, k - CALM + 1), k + 1).filter((v) => v !== null);
    return near.reduce((sum, v) => sum + v, 0) / near.length;
  });
}

function firstSince(frames, t) {
  let low = 0, high = frames.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (frames[middle].t < t) low = middle + 1;
    else high = middle;
  }
  return low;
}
