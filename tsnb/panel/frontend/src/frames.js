// Frames: rows of float32 numbers, laid out as tsnb/telemetry/shown/frames.py says. Pure.

const HEADER = 12;
const ROW = 9;
const APART = 4;
const PACE = 5;
const ALL = 3;
const MACHINE = 7;
const PROCESS = 5;
const GPU = 4;
const POINT = 8;
const LANES_AT = 16;
const METRICS_AT = 1024;
const MACHINE_MARK = -1;
const LOGGED_MARK = -2;
const PACES_MARK = -3;
const APART_MARK = -4;

/**
 * The frames in a DataView (or nothing), oldest first; each keeps its raw numbers for saving. `places`: where the panel has
 * the stream's lanes, where that differs.
 */
export function decode(view, places) {
  if (!view || !view.byteLength) return [];
  // a copy, because a view into a message need not be aligned to four bytes
  const end = view.byteOffset + view.byteLength - (view.byteLength % 4);
  const numbers = new Float32Array(view.buffer.slice(view.byteOffset, end));
  const frames = [];
  for (let at = 0; at + HEADER <= numbers.length; ) {
    const length = numbers[at + 1];
    if (!(length >= HEADER) || at + length > numbers.length) break; // torn: keep what came before
    frames.push(frame(numbers.subarray(at, at + length), places));
    at += length;
  }
  return frames;
}

/** All raw numbers of these frames as one DataView, for the model of a saved notebook. */
export function encode(frames) {
  const numbers = new Float32Array(frames.reduce((sum, f) => sum + f.raw.length, 0));
  let at = 0;
  for (const f of frames) {
    numbers.set(f.raw, at);
    at += f.raw.length;
  }
  return new DataView(numbers.buffer);
}

function frame(raw, places) {
  const [t, , batchesPerS, windowFill, epoch, published, leftS, slotsUsed, touchedMiB, batches, copied, alonePerS] = raw;
  const rows = [], laneOf = (number) => (places ? places[number] : number); // sparse, by lane
  let at = HEADER, machine = null;
  while (at + ROW <= raw.length && raw[at] >= 0) {
    const [place, fill, lag, samplesPerS, computing, waiting, held, epochs, batches] = raw.subarray(at, at + ROW);
    rows[laneOf(Math.floor(place / LANES_AT))] = { state: place % LANES_AT, fill, lag, samplesPerS, computing, waiting, held, joining: 0, paused: 0, timedOut: 0, epochs, batches };
    at += ROW;
  }
  if (raw[at] === APART_MARK) {
    const end = at + 2 + APART * raw[at + 1];
    for (at += 2; at + APART <= Math.min(end, raw.length); at += APART) {
      const [lane, joining, paused, timedOut] = raw.subarray(at, at + APART);
      Object.assign(rows[laneOf(lane)] || {}, { joining, paused, timedOut });
    }
  }
  let paces = null; // sparse, by lane; only now and then
  let all = null; // what is left of all trials together; as often
  if (raw[at] === PACES_MARK) {
    paces = [];
    const count = raw[at + 1];
    const [leftS, lowS, highS] = raw.subarray(at + 2, at + 2 + ALL);
    all = { leftS, lowS, highS };
    at += 2 + ALL;
    for (let k = 0; k < count && at + PACE <= raw.length; k++, at += PACE) {
      const [lane, stepMs, alonePerS, leftS, epochs] = raw.subarray(at, at + PACE);
      paces[laneOf(lane)] = { stepMs, alonePerS, eta: { leftS, epochs } };
    }
  }
  if (raw[at] === MACHINE_MARK && at + MACHINE <= raw.length) {
    machine = machineOf(raw, at, laneOf);
    at += MACHINE + PROCESS * raw[at + 5] + GPU * raw[at + 6];
  }
  const logged = []; // [lane, metric, value], the batches by then where they are not those of its row, and [low, high, mean, values] of several
  if (raw[at] === LOGGED_MARK) {
    for (let k = at + 1, size; k + 2 <= raw.length; k += size) {
      const code = raw[k] < 0 ? -1 - raw[k] : raw[k], place = Math.floor(code);
      size = raw[k] >= 0 ? 2 : code === place ? 3 : 7;
      logged.push([laneOf(Math.floor(place / METRICS_AT)), place % METRICS_AT, raw[k + 1], ...(size > 2 ? [raw[k + 2]] : []), ...(size > 3 ? [[...raw.subarray(k + 3, k + 7)]] : [])]);
    }
  }
  return { raw, t, batchesPerS, windowFill, epoch, published, leftS, slotsUsed, touchedMiB, batches, copied, alonePerS, rows, paces, all, machine, logged };
}

/** {cores, cpu, usedMiB, totalMiB, producer, trials: sparse by lane, gpus: [...]}; what cannot be seen is undefined. */
function machineOf(raw, at, laneOf) {
  const [, cores, cpu, usedMiB, totalMiB, processes, gpus] = raw.subarray(at, at + MACHINE);
  const machine = { cores, cpu, usedMiB, totalMiB, producer: undefined, trials: [], gpus: [] };
  at += MACHINE;
  for (let k = 0; k < processes; k++, at += PROCESS) {
    const [lane, cpu, memoryMiB, cores, gpuMiB] = raw.subarray(at, at + PROCESS);
    const process = { cpu, memoryMiB, cores, gpuMiB };
    if (lane < 0) machine.producer = process;
    else machine.trials[laneOf(lane)] = process;
  }
  for (let k = 0; k < gpus && at + GPU <= raw.length; k++, at += GPU) {
    const [index, busy, usedMiB, totalMiB] = raw.subarray(at, at + GPU);
    machine.gpus.push({ index, busy, usedMiB, totalMiB });
  }
  return machine;
}

/** The curves in a DataView: [{lane, metric, width, points: [[t, batches, epochs, last, low, high, mean, values], ...]}]. */
export function decodeCurves(view) {
  if (!view || !view.byteLength) return [];
  const end = view.byteOffset + view.byteLength - (view.byteLength % 4);
  const numbers = new Float32Array(view.buffer.slice(view.byteOffset, end)), found = [];
  for (let at = 0; at + 4 <= numbers.length; ) {
    const [lane, metric, width, count] = numbers.subarray(at, at + 4);
    at += 4;
    if (!(count >= 0) || at + POINT * count > numbers.length) break; // torn: keep what came before
    const points = [];
    for (let k = 0; k < count; k++, at += POINT) points.push([...numbers.subarray(at, at + POINT)]);
    found.push({ lane, metric, width, points });
  }
  return found;
}

/** All curves as one DataView, for the model of a saved notebook. */
export function encodeCurves(curves) {
  const numbers = curves.flatMap(({ lane, metric, width, points }) => [lane, metric, width, points.length, ...points.flat()]);
  return new DataView(Float32Array.from(numbers).buffer);
}
