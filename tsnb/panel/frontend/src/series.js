// From frames to what charts draw: lists of numbers over time, null where nothing is known. Pure.
//
// A chart has some 300 px, so frames are taken together in bins, as wide as `POINTS` bins make the span. Bins begin at
// whole multiples of their width: a value that has been drawn is drawn the same at the next tick, and nothing flickers.

/** The shares of a trial's time that a bar tells. */
export const SHARES = ["computing", "waiting", "held", "joining", "paused", "timedOut"];

const POINTS = 240;
const TICK_S = 0.25;
const CALM_S = 1; // lags move by whole batches, several times a second: they are averaged over this long

/**
 * The last `spanS` seconds of a reel. x: seconds before the last frame (<= 0). lag, rate, fill, own: one list a lane;
 * share: the own shares of compute, summed up from lane 0.
 */
export function series(reel, lanes, spanS) {
  const count = lanes.length, end = reel.last ? reel.last.t : 0;
  const lists = () => Array.from({ length: count }, () => []);
  const bins = binned(reel, spanS), x = bins.map((bin) => Math.min(0, bin.t - end));
  const out = { x, lag: lists(), rate: lists(), fill: lists(), share: lists(), own: lists() };
  for (const { frames } of bins) {
    const computing = lanes.map((_, lane) => mean(frames, (f) => f.rows[lane] && f.rows[lane].computing) || 0);
    const total = computing.reduce((sum, v) => sum + v, 0);
    let sum = 0;
    for (let lane = 0; lane < count; lane++) {
      out.lag[lane].push(mean(frames, (f) => f.rows[lane] && f.rows[lane].lag));
      out.rate[lane].push(mean(frames, (f) => f.rows[lane] && f.rows[lane].samplesPerS));
      out.fill[lane].push(mean(frames, (f) => f.rows[lane] && f.rows[lane].fill));
      const own = total > 0 ? computing[lane] / total : null;
      out.own[lane].push(own);
      out.share[lane].push(own === null ? null : (sum += own));
    }
  }
  const near = Math.max(1, Math.round(CALM_S / binS(spanS)));
  out.lag = out.lag.map((list) => calm(list, near));
  out.rate = out.rate.map((list) => calm(list, near)); // and rates by whole batches a window of rates
  out.fill = out.fill.map((list) => calm(list, near));
  return out;
}

/** Cores busy over time, from the frames that tell of the machine: the loader's own first, then one list a lane. */
export function cpuSeries(reel, count, spanS) {
  const end = reel.last ? reel.last.t : 0, frames = reel.since(spanS).filter((f) => f.machine);
  const out = { x: frames.map((f) => f.t - end), own: Array.from({ length: count + 1 }, () => []), stack: Array.from({ length: count + 1 }, () => []) };
  for (const { machine } of frames) {
    let sum = 0;
    [machine.producer, ...Array.from({ length: count }, (_, lane) => machine.trials[lane])].forEach((process, k) => {
      out.own[k].push(process ? process.cpu : null);
      out.stack[k].push((sum += process ? process.cpu : 0));
    });
  }
  return out;
}

/** How busy each GPU is over time. */
export function gpuSeries(reel, spanS) {
  const end = reel.last ? reel.last.t : 0, frames = reel.since(spanS).filter((f) => f.machine);
  const most = frames.reduce((top, f) => Math.max(top, f.machine.gpus.length), 0);
  const list = (k) => frames.map((f) => (f.machine.gpus[k] ? f.machine.gpus[k].busy : null));
  return { x: frames.map((f) => f.t - end), own: Array.from({ length: most }, (_, k) => list(k)) };
}

/**
 * What a lane did in all, for a stream that is over: {samplesPerS, computing, ...}, means over the time that it was there,
 * without pauses and time-outs; `paused` and `timedOut` of all that time; undefined if it never was.
 */
export function whole(reel, lane) {
  const sums = { samplesPerS: 0, computing: 0, waiting: 0, held: 0, joining: 0 }, stood = { paused: 0, timedOut: 0 };
  let seconds = 0, active = 0;
  reel.frames.forEach((frame, k) => {
    const row = frame.rows[lane], before = reel.frames[k - 1];
    if (!row || !Number.isFinite(row.computing)) return;
    const passedS = before && !reel.breaks(before, frame) ? frame.t - before.t : TICK_S;
    const activeS = passedS * Math.max(0, 1 - (row.paused || 0) - (row.timedOut || 0));
    seconds += passedS;
    active += activeS;
    for (const key of Object.keys(sums)) sums[key] += activeS * (row[key] || 0);
    for (const key of Object.keys(stood)) stood[key] += passedS * (row[key] || 0);
  });
  if (!seconds) return undefined;
  const means = (of, over) => Object.fromEntries(Object.entries(of).map(([key, sum]) => [key, over ? sum / over : 0]));
  return { ...means(sums, active), ...means(stood, seconds) };
}

/**
 * A lane's life in so many bars of equal time: {from, to, bars: [{here, computing, waiting, held}], share}; share: the means
 * over all the time that it was there, null where it never was. Times are in seconds of the reel. `begin`, `end`: those of the
 * bars; left out: the lane's own.
 */
export function timeline(reel, lane, bars, begin, end) {
  const { frames } = reel, first = frames.findIndex((frame) => frame.rows[lane]);
  if (first < 0) return { from: 0, to: 0, bars: [], share: null };
  let last = frames.length - 1;
  while (last > first && !frames[last].rows[lane]) last--;
  const from = begin ?? frames[first].t, to = end ?? frames[last].t, wide = (to - from) / bars || 1;
  const taken = Array.from({ length: bars }, () => []);
  for (let k = first; k <= last; k++) {
    taken[Math.min(bars - 1, Math.floor((frames[k].t - from) / wide))].push(frames[k].rows[lane]);
  }
  const shares = (list) => Object.fromEntries(SHARES.map((key) => [key, list.reduce((sum, row) => sum + (row[key] || 0), 0) / (list.length || 1)]));
  let before; // a thinned reel has fewer frames than bars: the one before holds until the next
  const out = taken.map((all, k) => {
    const list = all.filter((row) => row && Number.isFinite(row.computing)), here = all.some(Boolean);
    return (before = all.length ? { here, ...shares(list) } : k * wide + from > frames[last].t ? undefined : before);
  });
  const all = whole(reel, lane);
  return { from, to, bars: out, share: all || null };
}

const binS = (spanS) => Math.max(TICK_S, spanS / POINTS);

/** [{t, frames}]: the frames of each bin, and the time of its last; an empty one where a silence began. */
function binned(reel, spanS) {
  const width = binS(spanS), bins = [];
  let before = null, number = NaN;
  for (const frame of reel.since(spanS)) {
    if (before && reel.breaks(before, frame)) bins.push({ t: before.t + 0.01, frames: [] });
    const its = width > TICK_S ? Math.floor(frame.t / width) : frame;
    if (its !== number || !bins[bins.length - 1].frames.length) bins.push({ t: frame.t, frames: [] });
    const bin = bins[bins.length - 1];
    bin.frames.push(frame);
    bin.t = frame.t;
    before = frame;
    number = its;
  }
  return bins;
}

/** The mean of what is known; null if nothing is. */
function mean(frames, value) {
  let sum = 0, count = 0;
  for (const frame of frames) {
    const v = value(frame);
    if (Number.isFinite(v)) (sum += v), (count += 1);
  }
  return count ? sum / count : null;
}

/** The mean over this value and those before it, `near` in all; unknown stays unknown. */
function calm(values, near) {
  if (near < 2) return values;
  let sum = 0, known = 0;
  return values.map((value, k) => {
    const leaving = values[k - near];
    if (leaving !== null && leaving !== undefined) (sum -= leaving), (known -= 1);
    if (value === null) return null;
    (sum += value), (known += 1);
    return sum / known;
  });
}
