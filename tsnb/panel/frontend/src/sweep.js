// A sweep as numbers: the best so far, and what its parameters had to do with it. Pure.

import { isShare, textsOf, ticks } from "./ticks.js";
import { parameter } from "./words.js";

const APART = 0.12; // of an axis between two numbers beside it
const MOST_AXES = 6;
const MOST_WORDS = 12; // values of one parameter that is no number; more say nothing
const FEW_VALUES = 6; // of a grid: its axis has them, and no others
const SPREAD = 50; // a parameter whose largest value is so many times its smallest has a log axis

/** The best value of all curves until each place: {lane, x, raw, y}, with a step where it is beaten; null where there is none. */
export function bestSoFar(curves, way) {
  const points = curves.flatMap(({ lane, x, y }) => x.map((at, k) => [at, y[k], lane])).filter(([, value]) => Number.isFinite(value));
  points.sort((a, b) => a[0] - b[0]);
  let best = null;
  const x = [], y = [];
  for (const [at, value, lane] of points) {
    if (best && way * value <= way * best.value) continue;
    if (best) x.push(at), y.push(best.value);
    x.push(at), y.push(value);
    best = { value, lane };
  }
  if (!best) return null;
  x.push(points[points.length - 1][0]), y.push(best.value);
  return { lane: best.lane, x, raw: y, y };
}

/** The lanes that a sweep's view is of: those of sweeps; all, where there is none. `sweeps`: name of the trial -> its sweep's. */
export function lanesOfSweeps(lanes, sweeps) {
  const all = lanes.flatMap((lane, k) => (lane ? [k] : [])), swept = all.filter((k) => sweeps[lanes[k].name]);
  return new Set(swept.length ? swept : all);
}

/**
 * The parameters that differ: [{name, kind: "number" | "log" | "word", low, high, words, at: Map lane -> 0..1}], first those that
 * trials have most values of. `params`: name of the trial -> [[parameter, value as text], ...].
 */
export function axesOf(lanes, params) {
  const values = new Map();
  lanes.forEach((lane, k) => {
    for (const [name, text] of (lane && params.get(lane.name)) || []) {
      if (!values.has(name)) values.set(name, new Map());
      values.get(name).set(k, text);
    }
  });
  const axes = [...values].map(([name, texts]) => axisOf(name, texts)).filter(Boolean);
  return axes.sort((a, b) => b.at.size - a.at.size).slice(0, MOST_AXES);
}

/** The axis of one value; `texts`: Map lane -> text. null: it does not differ, or in too many words. */
export function axisOf(name, texts) {
  const different = [...new Set(texts.values())];
  if (different.length < 2) return null;
  const numbers = different.map((text) => (text.trim() ? Number(text) : NaN));
  if (numbers.every(Number.isFinite)) {
    const axis = numberAxis(name, [...texts].map(([lane, text]) => [lane, Number(text)]));
    return numbers.length <= FEW_VALUES ? { ...axis, values: [...numbers].sort((a, b) => a - b) } : axis;
  }
  if (different.length > MOST_WORDS) return null;
  const words = different.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  return { name, kind: "word", words, at: new Map([...texts].map(([lane, text]) => [lane, words.indexOf(text) / (words.length - 1)])) };
}

/** An axis of numbers, the largest at 1; `way` -1: the smallest is there. */
export function numberAxis(name, values, way = 1) {
  const all = values.map(([, value]) => value), low = Math.min(...all), high = Math.max(...all), log = low > 0 && high / low >= SPREAD;
  const of = log ? Math.log : (v) => v, wide = of(high) - of(low) || 1;
  const place = (value) => (of(value) - of(low)) / wide;
  return { name, kind: log ? "log" : "number", low, high, way, at: new Map(values.map(([lane, value]) => [lane, way < 0 ? 1 - place(value) : place(value)])) };
}

/** What stands beside an axis: [[place from 0 to 1, text], ...]; its ends, and the values of a grid or round numbers between them. */
export function labelsOf({ name, kind, words, low, high, way, values }, show = (v) => String(Number(v.toPrecision(2)))) {
  if (kind === "word") return words.map((word, k) => [k / (words.length - 1), word]);
  const of = kind === "log" ? Math.log : (v) => v, turn = (at) => (way < 0 ? 1 - at : at);
  const place = (value) => (high > low ? (of(value) - of(low)) / (of(high) - of(low)) : 0.5);
  if (values) {
    const all = values.map((value) => [Number(place(value).toFixed(4)), parameter(value)]), last = all.length - 1;
    return all.filter(([at], k) => k === 0 || k === last || (at - all[k - 1][0] >= APART / 2 && 1 - at >= APART / 2));
  }
  const found = ticks(low, high, 4, { log: kind === "log" }), texts = textsOf(found, isShare(name, low, high));
  const round = found.map((value, k) => [place(value), texts[k]]).filter(([at]) => at >= 0 && at <= 1);
  const ends = [[0, show(low)], [1, show(high)]].filter(([at]) => !round.some(([other]) => Math.abs(other - at) < APART));
  return [...ends, ...round].sort(([a], [b]) => a - b).map(([at, text]) => [Number(turn(at).toFixed(4)), text]);
}
