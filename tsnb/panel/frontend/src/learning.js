// Learning curves as numbers: by batch, epoch or time, smoothed, beside a chosen trial. Pure.

import { BATCHES, EPOCHS, HIGH, LAST, LOW, MEAN, T, VALUES } from "./curves.js";
import { isAccuracy, metric } from "./words.js";

export const AXES = { time: T, batch: BATCHES, epoch: EPOCHS }; // where a point has it
export const FEW = 40; // points of a curve that are drawn as points too
export const IN_COLOUR = 5; // of many curves the best
const SAMPLED = 2000; // values that tell how high a chart has to be

/** Curves of one metric: [{lane, x, at, counts, low, high, raw, y}], one for each trial that has logged it: `raw` is the mean of
 * each stretch, `low` and `high` its extremes, and `y` is `raw` smoothed over batches. */
export function curvesOf(store, name, { axis, smooth: weight }, pointsOf = (lane) => store.curve(lane, name)) {
  const place = AXES[axis], found = [];
  store.lanes.forEach((lane, number) => {
    const points = lane ? pointsOf(number).filter((point) => Number.isFinite(point[place]) && point[place] >= 0) : [];
    if (!points.length || (points.length === 1 && !lane.here && !points[0][BATCHES])) return; // it had ended before anybody looked
    const of = (what) => points.map((point) => point[what]), sparse = (lane.sparse || []).includes(name);
    const curve = { lane: number, name: lane.name, x: of(place), at: of(BATCHES), counts: of(VALUES), low: of(LOW), high: of(HIGH), raw: of(MEAN), sparse };
    found.push({ ...curve, y: smoothed(curve, weight) });
  });
  return found;
}

/** The same of the former runs of these trials. */
export const formersOf = (store, name, how) => curvesOf(store, name, how, (lane) => store.former(lane, name));

/** A value of about one an epoch is a mean already: it stays as it was logged. */
const smoothed = ({ raw, at, counts, sparse }, weight) => (sparse ? raw : smooth(raw, at, counts, constantOf(weight)));

/** Over how many batches a slider at `weight` (0 to below 1) smooths: 22 at 0.6, 24,010 at 0.98. */
export const constantOf = (weight) => Math.round(10 * (weight / (1 - weight)) ** 2);

/**
 * Where live values were set, on the x axis of a metric's chart: [{lane, x, text}], in the order of x. A trial was then where it
 * logged next; a change that it has not logged after yet stands at its end.
 */
export function setsOf(store, name, axis) {
  const at = AXES[axis], found = [];
  store.lanes.forEach((lane, number) => {
    const made = (lane && store.changes.get(lane.name)) || [];
    if (!made.length) return;
    const points = store.curve(number, name);
    if (!points.length) return;
    for (const [time, text] of made) {
      const t = time - store.originS, point = points.find((one) => one[0] >= t) || points[points.length - 1];
      const x = axis === "time" ? t : point[at];
      if (t >= points[0][0] && Number.isFinite(x) && x >= 0) found.push({ lane: number, x, text });
    }
  });
  return found.sort((a, b) => a.x - b.x);
}

/** Where a metric is no number any more, likewise: [{lane, x, text, whole}]. */
export function breaksOf(store, name, axis) {
  return store.lanes.flatMap((lane, number) => {
    const whole = lane ? store.brokenOf(number, name) : "", points = whole ? store.curve(number, name) : [];
    const last = points.findLastIndex((point) => Number.isFinite(point[LAST])), at = points[last + 1] || points[last], x = at ? at[AXES[axis]] : NaN;
    return x >= 0 ? [{ lane: number, x, text: metric(name, store.shown(number, name)), whole }] : [];
  });
}

/** Each value as a mean over those before it, weighing less by the batches that lie between: after `constant` of them by e. So a
 * curve is the same whether its stretches are joined or not. 0: as they are. What is not finite stays out. */
export function smooth(values, at, counts, constant) {
  if (!(constant > 0)) return values;
  let sum = 0, part = 0, before = at[0];
  return values.map((value, k) => {
    if (!Number.isFinite(value)) return value;
    const kept = Math.exp((before - at[k]) / constant), count = counts[k] || 1;
    before = at[k];
    sum = kept * sum + count * value;
    part = kept * part + count;
    return sum / part;
  });
}

/** Each curve less that of one trial at the same place: the difference after the same batches. That one is left out. Differences
 * are of what was logged, and are smoothed then: two smoothed curves lag behind differently where one logs more often. */
export function against(curves, lane, weight = 0) {
  const other = curves.find((curve) => curve.lane === lane);
  if (!other) return curves;
  const logged = { x: other.x, y: other.raw };
  return curves.filter((curve) => curve !== other).map((curve) => {
    const kept = curve.x.map((x, k) => [k, valueAt(logged, x)]).filter(([, value]) => value !== null), of = (list) => kept.map(([k]) => list[k]);
    const raw = kept.map(([k, value]) => curve.raw[k] - value);
    const less = { ...curve, x: of(curve.x), at: of(curve.at), counts: of(curve.counts), low: raw, high: raw, raw };
    return { ...less, y: smoothed(less, weight) };
  });
}

/** A curve's value at a place, in between on a straight line; null before its first point and after its last. */
export function valueAt({ x, y }, at) {
  const k = nearestAfter(x, at);
  if (k >= x.length || (k === 0 && x[0] > at)) return null;
  if (x[k] === at || k === 0) return y[k];
  const part = (at - x[k - 1]) / (x[k] - x[k - 1]);
  return y[k - 1] + part * (y[k] - y[k - 1]);
}

/** The first place in a rising list that is not below `at`. */
function nearestAfter(x, at) {
  let low = 0, high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The number of the point that is nearest to a place; -1 where there is none. */
export function nearest(x, at) {
  const k = nearestAfter(x, at);
  if (k === 0) return x.length ? 0 : -1;
  return k === x.length || at - x[k - 1] <= x[k] - at ? k - 1 : k;
}

/** Curves in the order of their last value, the best first; as they were where nobody knows what is good. */
export function ranked(curves, way) {
  const last = ({ y }) => y.findLast(Number.isFinite) ?? NaN;
  const score = (curve) => (Number.isFinite(last(curve)) ? way * last(curve) : -Infinity);
  return way ? curves.slice().sort((a, b) => score(b) - score(a) || (a.name < b.name ? -1 : 1)) : curves; // equal ones by name, as the star
}

/** Whether curves are drawn on a log scale: all above 0, and no number of which much is good, as an accuracy, unless the scale was chosen
 * for such alone. `chosen`: the names for which it was; `ways`: 1 where much is good. */
export function fitsLog(name, curves, chosen, ways) {
  const plain = (one) => isAccuracy(one) || ways[one] > 0;
  const asked = chosen.includes(name) && (!plain(name) || chosen.every(plain));
  return asked && curves.every(({ low, raw }) => (low || raw).every((value) => !(value <= 0)));
}

/** The range of what is drawn; a log axis leaves out what is not above 0. null: there is nothing. */
export function extent(lists, log) {
  let low = Infinity, high = -Infinity;
  for (const list of lists) {
    for (const value of list) {
      if (!Number.isFinite(value) || (log && value <= 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [low, high] : null;
}

/** The range of the x axis: from 0 where the first point is near it, or is the only one. */
export function across([low, high]) {
  if (high > low) return [low > 0 && low < (high - low) / 5 ? 0 : low, high];
  return low > 0 ? [0, low] : [low, low + 1];
}

/** The range without the wildest hundredth of a noisy curve, so that one peak does not flatten all. */
export function calmExtent(curves, log) {
  const count = curves.reduce((sum, { y }) => sum + y.length, 0), step = Math.ceil(count / SAMPLED), drawn = [];
  for (const { y } of curves) for (let k = y.length - 1; k >= 0; k -= step) if (Number.isFinite(y[k]) && (!log || y[k] > 0)) drawn.push(y[k]);
  drawn.sort((a, b) => a - b);
  if (drawn.length < 200) return extent(curves.map(({ y }) => y), log);
  const cut = Math.floor(drawn.length / 200);
  return [drawn[cut > 2 ? cut : 0], drawn[drawn.length - 1 - cut]];
}

/** A range with air above and below, which ends at 0 where it is near that; of what hardly changes as high as three figures tell. */
export function padded([low, high]) {
  const air = Math.max((high - low || Math.abs(high) || 1) * 0.06, (Math.abs(high) * 1e-3 - (high - low)) / 2);
  return [low >= 0 && low < high * 0.25 ? 0 : low - air, high + air];
}

const FAR = 3; // heights of what others draw, beyond which a curve does not count

/**
 * What sets the range of a linear axis, of each curve {lane, x, y}: all of it, unless its trial was pruned, has failed or diverged
 * (`gaveUp`). Of such a one counts what it logged before any other began, up to its best value (`way`: 1 where much is good). The rest
 * counts if none of it lies further from the values of the others than three times the height of all that these draw; else its line
 * leaves the chart at the edge. Where there are only such trials, or the others draw a flat line, all set it. The rule of reports
 * and of `tsnb.plot` too (tsnb/reports/ranges.py).
 */
export function inRange(curves, gaveUp, way = 0) {
  const others = curves.filter((curve) => !gaveUp(curve)), range = others.length && others.length < curves.length ? calmExtent(others, false) : null;
  if (!range || range[0] === range[1]) return curves;
  const reach = FAR * (range[1] - range[0]), began = Math.min(...others.flatMap(({ x }) => x.slice(0, 1)));
  const far = (value) => Number.isFinite(value) && !(value >= range[0] - reach && value <= range[1] + reach);
  return curves.map((curve) => {
    const { x, y } = curve;
    if (!gaveUp(curve) || !y.some(far)) return curve;
    const best = way ? y.reduce((top, value, k) => (Number.isFinite(value) && !(way * value <= way * y[top]) ? k : top), -1) : -1;
    const early = (k) => k <= best && x[k] < began, rest = !y.some((value, k) => far(value) && !early(k));
    return { ...curve, ...only(curve, (k) => early(k) || rest) };
  });
}

const only = ({ x, y }, fits) => ({ x: x.filter((_, k) => fits(k)), y: y.filter((_, k) => fits(k)) });

/** Whether a trial's number is none any more, or worse than where it began by more than that: of one that learns nothing yet the line
 * stays. `way`: 1 where much is good, -1 where little is. */
export function diverged({ y }, way) {
  const first = y.find(Number.isFinite), last = y[y.length - 1];
  return !Number.isFinite(last) || (y.length > 1 && way * (last - first) < -Math.abs(first));
}

/** Where labels stand that want to be at these heights: none nearer than `gap` to another, all between top and bottom. */
export function spread(heights, gap, top, bottom) {
  const order = heights.map((y, k) => [y, k]).sort((a, b) => a[0] - b[0]), placed = [];
  let before = top - gap;
  for (const [y, k] of order) placed.push([(before = Math.max(y, before + gap)), k]);
  let after = bottom + gap;
  for (let k = placed.length - 1; k >= 0; k--) after = placed[k][0] = Math.min(placed[k][0], after - gap);
  const out = [];
  for (const [y, k] of placed) out[k] = y;
  return out;
}

/** What is left of names that begin alike: {whole: short}; ["resnet18-lr-0.1", "resnet18-lr-0.3"] -> "…0.1", "…0.3" beyond 14 letters. */
export function shortened(names, most = 14) {
  const parts = names.map((name) => name.split(/(?<=[-_ /,=])/));
  const families = new Map(); // the trials of a sweep begin alike, whatever else is there
  for (const p of parts) families.set(p[0], [...(families.get(p[0]) || []), p]);
  for (const [first, family] of families) families.set(first, Object.assign(family, { values: valuesOf(family, most) }));
  const cut = parts.map((p, k) => {
    const { values } = families.get(p[0]);
    if (values) return values.get(names[k]);
    const same = names[k].length > most ? alikeTo(families.get(p[0])) : 0;
    return same ? `…${p.slice(same).join("")}` : names[k];
  });
  const fit = (name) => (name.length > most ? `${name.slice(0, Math.ceil(most / 2))}…${name.slice(1 - Math.floor(most / 2))}` : name);
  // behind what is shared the ends tell more than the beginnings
  const short = cut.map((name, k) => (families.get(parts[k][0]).values ? name : name !== names[k] && name.length > most ? `…${name.slice(1 - most)}` : fit(name)));
  const apart = names.map((name, k) => {
    const alike = names.filter((_, j) => short[j] === short[k]);
    return alike.length > 1 ? fromWhere(name, alike, most) : short[k];
  });
  return Object.fromEntries(names.map((name, k) => [name, apart.filter((one) => one === apart[k]).length > 1 ? apartFrom(name, names, most) : apart[k]]));
}

const SPARE = 4; // letters more than asked for, before names are cut in the midst of a number...
const THREE = 18; // ... and so many in any case: three values tell trials apart, and halves of names do not

/**
 * The names of one sweep where they are too long even without what all begin with: of train-lr0.03-net-mlp first "…lr0.03…mlp",
 * then with parameters by their first letter, as "…w32-e6", then "…0.03…mlp"; so that no number is cut. name -> short;
 * null: they fit, or are not made alike.
 */
function valuesOf(family, most) {
  const same = alikeTo(family), whole = (p) => (same ? `…${p.slice(same).join("")}` : p.join(""));
  if (family.length < 2 || family.some((p) => p.length !== family[0].length) || family.every((p) => p.join("").length <= most || whole(p).length <= most)) return null;
  const shared = family[0].map((_, k) => sharedBy(family.map((p) => p[k])));
  const letters = (name) => (name.length > 2 ? name.slice(0, 1) : name), without = () => "…";
  const fits = (short, room) => new Set(short).size === family.length && short.every((name) => name.length <= room);
  const ways = [(name) => name, letters, without].map((called) => family.map((p) => valued(p, shared, called)));
  const found = ways.find((short) => fits(short, most)) || (fits(ways[2], Math.max(THREE, most + SPARE)) ? ways[2] : null);
  return found && new Map(family.map((p, k) => [p.join(""), found[k]]));
}

/** A name without the parts that all share; `called`: what stands for a parameter before its value. */
function valued(parts, shared, called) {
  const text = parts.map((part, k) => (shared[k] === part.length ? "…" : (shared[k] ? called(part.slice(0, shared[k])) : "") + part.slice(shared[k]))).join("");
  return text.replace(/[-_ /,=]*…+/g, "…").replace(/[-_ /,=…]+$/, "");
}

/** How many letters all of these begin with: all of them, or the name of a parameter before its number. */
function sharedBy(parts) {
  if (new Set(parts).size === 1) return parts[0].length;
  const [name] = parts[0].match(/^[^\d.+-]*/);
  return parts.every((part) => part.startsWith(name) && /^[\d.+-]/.test(part.slice(name.length))) ? name.length : 0;
}

/** A name's end, else its beginning and end, as little longer than asked for as tells it from all others. */
function apartFrom(name, names, most) {
  const end = (one, letters) => (one.length <= letters ? one : `…${one.slice(1 - letters)}`);
  const both = (one, letters) => (one.length <= letters ? one : `${one.slice(0, Math.ceil((letters - 1) / 2))}…${one.slice(-Math.floor((letters - 1) / 2))}`);
  for (let letters = most; letters < name.length; letters++) {
    const found = [end, both].find((cut) => !names.some((other) => other !== name && cut(other, letters) === cut(name, letters)));
    if (found) return found(name, letters);
  }
  return name;
}

/** How many parts several names have in common, each with one of its own left. */
function alikeTo(family) {
  let same = 0;
  while (family.length > 1 && family.every((p) => p.length > same + 1 && p[same] === family[0][same])) same++;
  return same;
}

/** A name from the letter on by which it differs from others. */
function fromWhere(name, others, most) {
  let at = 0;
  while (at < name.length && others.every((other) => other[at] === name[at])) at++;
  const left = name.slice(Math.max(0, Math.min(at - 1, name.length - most + 1)));
  return left.length < most ? `…${left}` : `…${left.slice(0, most - 2)}…`;
}
