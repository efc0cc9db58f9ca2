// Frames: rows of float32 numbers, laid out as tsnb/panel/frames.py says. Pure.

const HEADER = 12;
const ROW = 11;
const MACHINE = 6;
const PROCESS = 5;
const GPU = 4;
const METRICS_AT = 16;
const LANES_AT = 128;

/** The frames in a DataView (or nothing), oldest first; each keeps its raw numbers for saving. */
export function decode(view) {
  if (!view || !view.byteLength) return [];
  // a copy, because a view into a message need not be aligned to four bytes
  const end = view.byteOffset + view.byteLength - (view.byteLength % 4);
  const numbers = new Float32Array(view.buffer.slice(view.byteOffset, end));
  const frames = [];
  for (let at = 0; at + HEADER <= numbers.length; ) {
    const length = numbers[at + 1];
    if (!(length >= HEADER) || at + length > numbers.length) break; // torn: keep what came before
    frames.push(frame(numbers.subarray(at, at + length)));
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

function frame(raw) {
  const [t, , batchesPerS, windowFill, epoch, published, leftS, slotsUsed, touchedMiB, batches, copied, alonePerS] = raw;
  const rows = []; // sparse, by lane
  let at = HEADER, machine = null;
  while (at + ROW <= raw.length && raw[at] >= 0) {
    const [place, fill, lag, samplesPerS, computing, waiting, held, epochs, position, stepMs, alonePerS] = raw.subarray(at, at + ROW);
    const state = place % METRICS_AT, lane = Math.floor(place / LANES_AT);
    const end = at + ROW + Math.floor((place % LANES_AT) / METRICS_AT);
    rows[lane] = { state, fill, lag, samplesPerS, computing, waiting, held, epochs, position, stepMs, alonePerS, metrics: raw.subarray(at + ROW, end) };
    at = end;
  }
  if (at + MACHINE <= raw.length) machine = machineOf(raw, at);
  return { raw, t, batchesPerS, windowFill, epoch, published, leftS, slotsUsed, touchedMiB, batches, copied, alonePerS, rows, machine };
}

/** {cores, cpu, usedMiB, totalMiB, producer, trials: sparse by lane, gpus: [...]}; what cannot be seen is undefined. */
function machineOf(raw, at) {
  const [, cores, cpu, usedMiB, totalMiB, count] = raw.subarray(at, at + MACHINE);
  const machine = { cores, cpu, usedMiB, totalMiB, producer: undefined, trials: [], gpus: [] };
  at += MACHINE;
  for (let k = 0; k < count; k++, at += PROCESS) {
    const [lane, cpu, memoryMiB, cores, gpuMiB] = raw.subarray(at, at + PROCESS);
    const process = { cpu, memoryMiB, cores, gpuMiB };
    if (lane < 0) machine.producer = process;
    else machine.trials[lane] = process;
  }
  for (; at + GPU <= raw.length; at += GPU) {
    const [index, busy, usedMiB, totalMiB] = raw.subarray(at, at + GPU);
    machine.gpus.push({ index, busy, usedMiB, totalMiB });
  }
  return machine;
}
