// What came out of a stream whose trials have all ended, in the words of its saved picture (tsnb/telemetry/shown/outcome.py). Pure.

import { clock, hourIn, isAccuracy, metric } from "./words.js";
import { metricsOf } from "./lanes.js";

const ENDS = ["done", "failed", "crashed", "interrupted", "stopped", "pruned", "ended"]; // in the order in which they are told

const EARLY = new Set(ENDS.slice(1)); // ends of trials that have trained less than they should
const NAMED = 2; // more trials than this that are equal to the best are counted

const TELLS_S = 2; // a trial tells how it ended within so many seconds after it has left its stream

/** Whether a trial has left so lately that how it ended may still be told. */
export const isUntold = (store, { here, pending, unknown, end, since_s }) => {
  const over = store.state === "gone" || store.recorded || !store.last;
  return !over && !here && !pending && !unknown && (!end || end === "left") && store.last.t - since_s < TELLS_S;
};

/** Whether all trials have ended, or the stream has, and it is known how one of them did. */
export const isOver = (store) => {
  const lanes = store.lanes.filter(Boolean);
  if (lanes.some((lane) => isUntold(store, lane))) return false;
  return lanes.some(({ here, end }) => !here && end) && (store.state === "gone" || lanes.every(({ here, pending }) => !here && !pending));
};

/**
 * The number by which the best of these lanes is told: that by which a sweep's rule decides, else an accuracy where one was logged,
 * else the first of which is known which way is good. `lanes`: left out: all of them.
 */
export function decisive(store, lanes = store.lanes.map((_, k) => k)) {
  const { sweeps = {}, rules = {}, rule: told } = store, known = metricsOf(store.lanes).filter((name) => store.ways[name]);
  const ruled = new Set(lanes.flatMap((k) => (store.lanes[k] && rules[sweeps[store.lanes[k].name]]) || []));
  const [rule, ...others] = told && !Object.keys(rules).length ? [told] : ruled; // the sweeps may be another notebook's
  if (!others.length && known.includes(rule)) return rule;
  return known.find(isAccuracy) ?? known[0];
}

/** The numbers that are shown where nobody has chosen: the first ones, and that by which the best is told. */
export function usual(store, most) {
  const all = metricsOf(store.lanes), first = all.slice(0, most), by = decisive(store);
  return by === undefined || first.includes(by) ? first : [...first.slice(0, most - 1), by];
}

/** What a column of a logged number says of itself. `way`: 1 high is good, -1 low; undefined: nobody knows. */
export function aboutMetric(name, way) {
  const better = way ? `${way > 0 ? "High" : "Low"} is better, and a star marks the best.` : "tsnb does not know whether high or low is better: tsnb.records.direction() tells it.";
  return `${name}: the last value that each trial logged, not smoothed as in the chart. ${better}`;
}

/** [lead, rest]; both empty where no trial has ended. */
export function outcome(store) {
  const counts = new Map();
  for (const lane of store.lanes) {
    if (!lane || lane.unknown || (lane.here && store.state !== "gone")) continue;
    // of those that were there when the stream ended, and of those that have only left it, nobody knows how
    const word = !lane.here && ENDS.includes(lane.end) ? lane.end : "ended";
    counts.set(word, (counts.get(word) || 0) + 1);
  }
  const ends = ENDS.filter((end) => counts.has(end)).map((end) => `${counts.get(end)} ${end}`).join(", ");
  if (!ends) return ["", ""];
  if (store.say?.duels) return [store.say.duels, `${ends}.`]; // which of their arms has the best number is one seed's luck
  const name = decisive(store), best = name === undefined ? -1 : store.bestOf(name);
  if (best < 0) return [`${ends}.`, ""];
  return [`${store.lanes[best].name} is best: ${name} ${metric(name, store.value(best, name))}${equal(store, best, name)}.`, `${ends}.${better(store, best, name)}`];
}

/** Whether a trial ended before it was done. */
export const isEarly = ({ here, end }) => !here && EARLY.has(end);

/** Which trial had a better number than the best one, and does not count as it ended early; empty: none had. */
function better(store, best, name) {
  const { lanes } = store, way = store.ways[name];
  if (isEarly(lanes[best])) return "";
  const early = lanes.map((_, k) => k).filter((k) => lanes[k] && isEarly(lanes[k]) && lanes[k].metrics.includes(name)).sort((a, b) => (lanes[a].name < lanes[b].name ? -1 : 1));
  const first = early.reduce((than, k) => (way * (store.value(k, name) - store.value(than, name)) > 0 ? k : than), best);
  return first === best ? "" : ` ${lanes[first].name} ended early with ${metric(name, store.value(first, name))}.`;
}

/** Which trials have the number of the best; empty: none. */
function equal(store, best, name) {
  const { lanes } = store;
  const same = lanes.filter((lane, k) => lane && k !== best && lane.metrics.includes(name) && store.value(k, name) === store.value(best, name) && isEarly(lane) === isEarly(lanes[best])).map((lane) => lane.name).sort();
  return same.length ? `, equal to ${same.length <= NAMED ? same.join(" and ") : `${same.length} others`}` : "";
}

/** How long trials were there, and when the last one ended: "Trained for 2:14, ended at 15:02." `nowMs` since 1970. */
export function span(store, nowMs) {
  const [from, to, busy = to - from] = store.say.trained || [];
  if (to === undefined || !store.originS) return "";
  return `Trained for ${clock(busy)}, ended at ${hourIn((store.originS + to) - nowMs / 1000, nowMs)}.`;
}
