// The streams of one panel: a store of each, and one picture of all their trials, where a trial is one row however many
// streams it is on. Knows no DOM.

import { Log } from "./log.js";
import { FLOWING, Numbers, Store, pendingState, timesOf } from "./store.js";
import { LIVE, NO_ETA } from "./words.js";

export class Streams {
  /** `pulse`: whether the kernel answers. */
  constructor(clock, pulse = null) {
    this.clock = clock;
    // what the notebook knows of its trials, on whichever stream they are
    this.shared = { pulse, log: new Log(), params: new Map(), changes: new Map(), verdicts: {}, sweeps: {}, rules: {}, beside: [], plan: null, duels: [], facts: new Map() };
    this.load({});
  }

  /** Replace everything: at the start, when ticks were missed, and when another stream has come. */
  load(scene, history, curves) {
    const scenes = scene.streams || [scene], lengths = scene.lengths || [];
    const names = scenes.length > 1 ? new Map() : null;
    let at = 0, from = 0;
    this.stores = scenes.map((one, k) => {
      const store = new Store(this.clock, { names, shared: this.shared });
      const [frames, points] = lengths[k] || [];
      store.load(one, lengths.length ? part(history, at, frames) : history, lengths.length ? part(curves, from, points) : curves);
      (at += frames), (from += points);
      return store;
    });
    if (scene.streams && scene.log) this.shared.log.load(scene.log);
    this.whole = this.stores.length > 1 ? new Joint(this.stores, this.shared) : this.stores[0];
    if (scene.known) this.know(scene.known);
  }

  /** Take in a tick of one of them; false if one before it was missed and everything must be asked for again. */
  tick(content, view) {
    const store = this.stores[content.at || 0];
    return store ? store.tick(content, view) : false;
  }

  /** The last tick: of several streams that of each. */
  get n() {
    return this.stores.length > 1 ? this.stores.map(({ n }) => n) : this.stores[0].n;
  }

  /** What the notebook has said of its trials; whether its duels have changed. */
  know({ trials = {}, verdicts = {}, changes = {}, sweeps = {}, rules = {}, beside = [], plan = null, duels = [] }) {
    const same = JSON.stringify(duels) === JSON.stringify(this.shared.duels);
    this.known = { trials, verdicts, changes, sweeps, rules, beside, plan, duels };
    const found = { params: new Map(Object.entries(trials)), verdicts, sweeps, rules, beside, plan, changes: new Map(Object.entries(changes)), duels: same ? this.shared.duels : duels };
    Object.assign(this.shared, found);
    Object.assign(this.whole, found);
    return !same;
  }

  /** As `Store.snapshot`, of all of them. */
  snapshot() {
    const parts = this.stores.map((store) => store.snapshot()), log = this.shared.log.snapshot();
    const { known } = this;
    if (parts.length === 1) return { ...parts[0], scene: { ...parts[0].scene, log, known } };
    const lengths = parts.map(({ history, curves }) => [history.byteLength, curves.byteLength]);
    const scene = { streams: parts.map((one) => one.scene), lengths, saved: true, log, known };
    return { scene, history: joined(parts.map((one) => one.history)), curves: joined(parts.map((one) => one.curves)) };
  }
}

/** So many bytes of a view. */
const part = (view, at, length) => (view && view.byteLength >= at + length ? new DataView(view.buffer, view.byteOffset + at, length) : null);

function joined(views) {
  const out = new Uint8Array(views.reduce((sum, view) => sum + view.byteLength, 0));
  let at = 0;
  for (const view of views) {
    out.set(new Uint8Array(view.buffer, view.byteOffset, view.byteLength), at);
    at += view.byteLength;
  }
  return new DataView(out.buffer);
}

/**
 * Several stores as one, for the rows, curves and the drawer: a lane is a trial by its name. Where a trial is now, and its
 * state, are those on the stream that it spends most of its time on; shares of its time and samples/s are sums over all.
 */
export class Joint extends Numbers {
  constructor(stores, shared) {
    super();
    Object.assign(this, { stores, clock: stores[0].clock, ...shared });
  }

  get first() {
    return this.stores[0];
  }

  get n() {
    return this.stores.reduce((sum, store) => sum + store.n, 0);
  }

  get originS() {
    return Math.min(...this.stores.map((store) => store.originS || Infinity));
  }

  get state() {
    return (this.stores.find((store) => LIVE.has(store.state)) || this.first).state;
  }

  get recorded() {
    return this.stores.every((store) => store.recorded);
  }

  get heardMs() {
    return Math.max(...this.stores.map((store) => store.heardMs));
  }

  get endS() {
    return Math.max(...this.stores.map((store) => store.endS));
  }

  get can() {
    return this.first.can;
  }

  get say() {
    return this.first.say;
  }

  get gpus() {
    return (this.stores.find((store) => store.gpus.length) || this.first).gpus;
  }

  get rule() {
    const [rule, ...others] = new Set(this.stores.map((store) => store.rule).filter(Boolean));
    return others.length ? "" : rule;
  }

  get ways() {
    return Object.assign({}, ...this.stores.map((store) => store.ways));
  }

  get stream() {
    const caches = this.stores.filter((store) => store.stream.cache).map((store) => `${store.stream.name}: ${store.stream.cache}`);
    const name = this.stores.map((store) => store.stream.name).join(", ");
    const unrepeatable = this.stores.map((store) => store.stream.unrepeatable).find(Boolean) || "";
    return { ...this.first.stream, name, cache: caches.join("; "), unrepeatable };
  }

  get frames() {
    return this.first.frames;
  }

  get reel() {
    return this.first.reel;
  }

  get last() {
    const { last } = this.stores.find((store) => store.last) || this.first;
    if (!last) return undefined;
    const all = { touchedMiB: this.sum((store) => store.last && store.last.touchedMiB), slotsUsed: this.sum((store) => store.last && store.last.slotsUsed) };
    return { ...last, ...all, batches: this.sum((store) => store.last && store.last.batches) };
  }

  /** The newest look at the machine: each stream's process sees the same one. */
  get machine() {
    return this.stores.map((store) => store.machine).find(Boolean) || null;
  }

  get marks() {
    return this.stores.flatMap((store) => store.marks.map((mark) => ({ ...mark, t: mark.t + this.shift(store) }))).sort((a, b) => a.t - b.t);
  }

  sum(value) {
    return this.stores.reduce((sum, store) => sum + (value(store) || 0), 0);
  }

  /** How much later than the earliest one a stream began. */
  shift(store) {
    return store.originS ? store.originS - this.originS : 0;
  }

  /** The trials, each once; looked up once a tick. */
  get lanes() {
    if (this.lanesAt !== this.n) Object.assign(this, { lanesAt: this.n, those: this.joinedLanes() });
    return this.those;
  }

  joinedLanes() {
    const count = Math.max(...this.stores.map((store) => store.lanes.length));
    return Array.from({ length: count }, (_, k) => {
      const found = this.on(k).map((store) => [store, store.lanes[k]]);
      if (!found.length) return null;
      const own = found.map(([, lane]) => lane), ended = own.find((lane) => lane.end) || own[0];
      const here = own.some((lane) => lane.here);
      return {
        name: own[0].name,
        here,
        since_s: Math.max(...found.map(([store, lane]) => lane.since_s + this.shift(store))),
        metrics: [...new Set(own.flatMap((lane) => lane.metrics))],
        sparse: [...new Set(own.flatMap((lane) => lane.sparse || []))],
        run: own.reduce((sum, lane) => sum + (lane.run || 0), 0),
        awaits: own.map((lane) => lane.awaits).find(Boolean) || "",
        pending: here ? "" : own.map((lane) => lane.pending).find(Boolean) || "",
        end: here ? "" : ended.end,
        error: here ? "" : ended.error,
        part: [...new Set(own.map((lane) => lane.part).filter(Boolean))].join("; "),
        last: here ? {} : Object.assign({}, ...own.map((lane) => lane.last)),
      };
    });
  }

  /** The stores of the streams that a trial is on, or was. */
  on(lane) {
    return this.stores.filter((store) => store.lanes[lane]);
  }

  /** The store of the stream that a trial spends most of its time on now. */
  flowOf(lane) {
    const all = this.on(lane), here = all.filter((store) => store.lanes[lane].here);
    const spent = (store) => {
      const row = store.lastRow(lane);
      return row ? (row.computing || 0) + (row.waiting || 0) + (row.held || 0) : 0;
    };
    return (here.length ? here : all).reduce((most, store) => (spent(store) > spent(most) ? store : most));
  }

  placeOf(lane) {
    const flow = this.flowOf(lane);
    return { ...flow.placeOf(lane), row: flow.lastRow(lane), stream: flow.stream.name };
  }

  /** The epochs of the stream that comes first among those that it is on. */
  epochsOf(lane) {
    const all = this.on(lane), main = all.find((store) => (store.lastRow(lane) || {}).epochs >= 0) || all[0];
    return main.epochsOf(lane);
  }

  inAll(lane) {
    return together(this.on(lane).map((store) => store.inAll(lane)));
  }

  savedLive(lane) {
    return this.on(lane).some((store) => store.savedLive(lane));
  }

  /** What a batch costs it where it is now; what is left of it is the longest of all its streams. */
  paceOf(lane) {
    const left = this.on(lane).map((store) => store.paceOf(lane).eta || NO_ETA).filter(({ leftS }) => leftS >= 0);
    const flow = this.flowOf(lane).paceOf(lane);
    return { ...flow, eta: left.reduce((most, eta) => (eta.leftS > most.leftS ? eta : most), left[0] || flow.eta || NO_ETA) };
  }

  /** What is left of all trials: of the stream that takes longest. */
  get all() {
    return this.stores.map(({ all }) => all).filter(({ leftS }) => leftS >= 0).reduce((most, all) => (most.leftS > all.leftS ? most : all), NO_ETA);
  }

  stateOf(lane) {
    if (this.lanes[lane].here) return this.flowOf(lane).stateOf(lane);
    return { state: pendingState(this.lanes[lane]) || this.lanes[lane].end || "gone", forS: 0 };
  }

  told(lane) {
    return this.rowOf(lane, (store) => store.told(lane));
  }

  lastRow(lane) {
    return this.rowOf(lane, (store) => store.lastRow(lane));
  }

  rowOf(lane, row) {
    const all = this.on(lane), here = all.filter((store) => store.lanes[lane].here), main = this.flowOf(lane);
    const sums = together((here.length ? here : all).map(row));
    return sums && { ...row(main), ...sums, epochs: (this.epochsOf(lane).row || {}).epochs };
  }

  /** A number is told to every stream that a trial is on, at its steps there: of the first, unless another has heard far more of it. */
  curve(lane, name, run = "curve") {
    const all = this.on(lane).map((store) => [store, store[run](lane, name)]);
    if (!all.length) return [];
    const [store, points] = all.reduce((most, one) => (one[1].length > 2 * most[1].length ? one : most)), shift = this.shift(store);
    return shift ? points.map(([t, ...rest]) => [t + shift, ...rest]) : points;
  }

  former(lane, name) {
    return this.curve(lane, name, "former");
  }

  lastOf(lane, name) {
    const points = this.curve(lane, name);
    return points.length ? points[points.length - 1][3] : undefined;
  }

  timesOf(lane, bars) {
    return timesOf(this.on(lane).map((store) => [store.reel, this.shift(store)]), lane, bars);
  }
}

/** Sums of what a trial does on several streams; it cannot spend more time than there is. */
function together(rows) {
  const known = rows.filter((row) => row && (Number.isFinite(row.computing) || Number.isFinite(row.samplesPerS)));
  if (!known.length) return rows.find(Boolean);
  const sums = Object.fromEntries(FLOWING.map((key) => [key, known.reduce((sum, row) => sum + (row[key] || 0), 0)]));
  const over = Math.max(1, sums.computing + sums.waiting + sums.held + sums.joining);
  for (const key of ["computing", "waiting", "held", "joining"]) sums[key] /= over;
  for (const key of ["paused", "timedOut"]) sums[key] = Math.min(...known.map((row) => row[key] || 0)); // on all of them at once
  return sums;
}
