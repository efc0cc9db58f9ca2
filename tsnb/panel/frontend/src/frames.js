// Frames: rows of float32 numbers, laid out as tsnb/panel/frames.py says. Pure.

const HEADER = 10;
const ROW = 11;

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
  const [t, , batchesPerS, windowFill, epoch, published, slotsUsed, touchedMiB, batches, copied] = raw;
  const rows = []; // sparse, by lane
  for (let at = HEADER; at + ROW <= raw.length; ) {
    const [lane, state, fill, lag, samplesPerS, computing, waiting, held, epoch, position, count] = raw.subarray(at, at + ROW);
    const metrics = raw.subarray(at + ROW, at + ROW + count);
    rows[lane] = { state, fill, lag, samplesPerS, computing, waiting, held, epoch, position, metrics };
    at += ROW + count;
  }
  return { raw, t, batchesPerS, windowFill, epoch, published, slotsUsed, touchedMiB, batches, copied, rows };
}
