// What stands beside an axis: few, round numbers, of which no two have the same text. tsnb/reports/learned/ticks.py has the same for
// the saved picture and the report; a test compares. Pure.

import { isAccuracy } from "./words.js";

const CLOCK = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200]; // steps of an axis of time, in seconds
const DAY = 86400;
const LARGE = 1e5, TINY = 1e-4; // beyond these a number is written with a power of ten

/** Round numbers from `low` to `high`, about `most` of them, on a log scale too; none is nearer than `least` to the next. */
export function ticks(low, high, most, { log = false, least = 0 } = {}) {
  if (!(high > low)) return [low];
  if (log) return logTicks(low, high, most);
  const unit = 10 ** Math.floor(Math.log10((high - low) / most));
  return multiples(low, high, Math.max(least, unit * [1, 2, 5, 10].find((k) => numberOf(low, high, k * unit) <= most + 1)));
}

/** The same of seconds: whole ones, minutes or hours. */
export function timeTicks(low, high, most) {
  const step = CLOCK.find((one) => numberOf(low, high, one) <= most + 1);
  return multiples(low, high, step ?? DAY * Math.ceil((high - low) / DAY / most));
}

const first = (low, step) => Math.ceil(low / step - 1e-9);
const numberOf = (low, high, step) => Math.floor(high / step + 1e-9) - first(low, step) + 1;
const multiples = (low, high, step) => Array.from({ length: Math.max(0, numberOf(low, high, step)) }, (_, k) => (first(low, step) + k) * step);

function logTicks(low, high, most) {
  const from = Math.floor(Math.log10(low) + 1e-9), to = Math.ceil(Math.log10(high) - 1e-9);
  for (const digits of [[1, 2, 5], [1, 3], [1]]) {
    if ((to - from) * digits.length > 3 * most + 6) continue;
    const found = Array.from({ length: to - from + 1 }, (_, k) => digits.map((digit) => Number(`${digit}e${from + k}`))).flat();
    const inside = found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
    if (inside.length < 3) return ticks(low, high, most); // less than a decade
    if (inside.length <= most + 1) return inside;
  }
  const least = Math.ceil(Math.log10(low)), step = Math.ceil((Math.log10(high) - least) / most);
  return Array.from({ length: most }, (_, k) => Number(`1e${least + k * step}`)).filter((value) => value <= high);
}

/** The texts of such numbers: as many decimals as tell them apart. `share`: as per cent. */
export function textsOf(values, share = false) {
  const all = values.map((value) => (share ? value * 100 : value)), [a, b, c] = all, size = Math.max(...all.map(Math.abs));
  const even = all.length === 2 ? a === 0 || Math.abs(a) > 0.9 * (b - a) : all.length > 2 && Math.abs(c - 2 * b + a) < 1e-6 * (b - a);
  const power = even ? Math.floor(Math.log10((b - a) * 1.0001)) : null;
  const text = (value) => {
    if (all.length === 1) return String(Number(value.toPrecision(12)));
    const own = even ? power : Math.floor(Math.log10(Math.abs(value)) + 1e-9); // of a log axis each is one digit and a power of ten
    if (value === 0) return "0";
    if (size >= LARGE || (even ? size : Math.abs(value)) < TINY) return value.toExponential(even ? Math.max(0, Math.floor(Math.log10(size) + 1e-9) - own) : 0);
    return value.toFixed(Math.max(0, -own));
  };
  return all.map((value) => text(value) + (share ? " %" : ""));
}

/** Whether numbers of that name are written as per cent on an axis from `low` to `high`. */
export const isShare = (name, low, high) => isAccuracy(name) && low >= -0.2 && high <= 1.2;
