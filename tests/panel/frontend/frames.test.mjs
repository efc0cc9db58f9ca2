import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES, bytes } from "./sources.mjs";

const { decode, decodeCurves, encode, encodeCurves } = await import(`${SOURCES}/frames.js`);

// a row begins with 16 lane + state
const bare = [0, 12, 1, 0, 0, 1, NaN, 1, 1, 1, 0, 9];

test("a frame written by hand is read back, what was logged and all", () => {
  const row = [16 * 2 + 4, 7, 3, 608.5, 0.75, 0.25, 0, 1, 40], apart = [-4, 1, 2, 0.125, 0.5, 0.25], paces = [-3, 1, 750, 600, 900, 2, 12.5, 811, 70, 0], logged = [-2, 2048, 0.098, -1 - 2048, 0.5, 37, -1.5 - 2048, 0.5, 40, 0.25, 2, 1.25, 3, 2048 + 17, 0.97];
  const [frame] = decode(bytes([12.5, 12 + row.length + apart.length + paces.length + logged.length, 9.5, 3, 1, 43, 72, 12, 212, 106, 1, 17.5, ...row, ...apart, ...paces, ...logged]));
  assert.equal(frame.t, 12.5);
  assert.equal(frame.windowFill, 3);
  assert.equal(frame.leftS, 72);
  assert.equal(frame.batches, 106);
  assert.equal(frame.rows.length, 3);
  assert.equal(frame.rows[0], undefined);
  assert.equal(frame.rows[2].state, 4);
  assert.equal(frame.rows[2].samplesPerS, 608.5);
  assert.equal(frame.rows[2].batches, 40);
  assert.deepEqual([frame.rows[2].joining, frame.rows[2].paused, frame.rows[2].timedOut], [0.125, 0.5, 0.25]);
  assert.deepEqual([frame.alonePerS, frame.paces[2]], [17.5, { stepMs: 12.5, alonePerS: 811, eta: { leftS: 70, epochs: 0 } }]);
  assert.deepEqual(frame.all, { leftS: 750, lowS: 600, highS: 900 });
  assert.deepEqual(frame.logged, [[2, 0, Math.fround(0.098)], [2, 0, 0.5, 37], [2, 0, 0.5, 40, [0.25, 2, 1.25, 3]], [2, 17, Math.fround(0.97)]]);
  assert.equal(frame.machine, null);
});

test("the machine's numbers follow the rows: processes by lane, the loader, GPUs, then what was logged", () => {
  const row = [1, 0, 0, 64, 1, 0, 0, 0, 2];
  const machine = [-1, 4, 1.5, 3072, 16384, 2, 2, 0, 0.75, 200, 2, 1024, -1, 0.5, 300, 4, 0];
  const gpus = [0, 0.5, 9216, 81920, 1, 0.25, 512, 81920];
  const body = [...row, ...machine, ...gpus, -2, 0, 0.5];
  const [frame] = decode(bytes([1, 12 + body.length, 1, 0, 0, 2, 5, 1, 1, 2, 0, 9, ...body]));
  assert.equal(frame.rows[0].samplesPerS, 64);
  assert.equal(frame.machine.cores, 4);
  assert.deepEqual(frame.machine.trials[0], { cpu: 0.75, memoryMiB: 200, cores: 2, gpuMiB: 1024 });
  assert.equal(frame.machine.producer.cpu, 0.5);
  assert.deepEqual(frame.machine.gpus.map((gpu) => [gpu.index, gpu.busy]), [[0, 0.5], [1, 0.25]]);
  assert.deepEqual(frame.logged, [[0, 0, 0.5]]);
  assert.equal(frame.paces, null);
});

test("curves written by hand are read back, and encode to the same bytes; a torn end gives what came before", () => {
  const one = [1, 10, 0.5, 2.5, 2.5, 2.5, 2.5, 1], two = [2, 20, 1, 2.25, 2, 3, 2.5, 4], three = [2, 20, 1, 0.5, 0.5, 0.5, 0.5, 1];
  const numbers = [0, 0, 8, 2, ...one, ...two, 3, 1, 1, 1, ...three];
  const curves = decodeCurves(bytes(numbers));
  assert.deepEqual(curves, [{ lane: 0, metric: 0, width: 8, points: [one, two] }, { lane: 3, metric: 1, width: 1, points: [three] }]);
  assert.deepEqual([...new Float32Array(encodeCurves(curves).buffer)], numbers);
  assert.equal(decodeCurves(bytes([...numbers, 4, 0, 1, 9, 1])).length, 2);
  assert.deepEqual(decodeCurves(null), []);
});

test("frames of different length lie end to end", () => {
  const full = [1, 23, 1, 0, 0, 2, NaN, 1, 1, 2, 0, 9, 1, 1, 0, 64, 1, 0, 0, 0, 2, 9, 64];
  const frames = decode(bytes([...bare, ...full, ...bare]));
  assert.deepEqual(frames.map((f) => f.t), [0, 1, 0]);
  assert.deepEqual(frames.map((f) => f.rows.length), [0, 1, 0]);
});

test("a view that is not aligned, as messages have them, is read all the same", () => {
  const aligned = new Uint8Array(bytes([5, ...bare.slice(1)]).buffer);
  const shifted = new Uint8Array(aligned.length + 3);
  shifted.set(aligned, 3);
  assert.equal(decode(new DataView(shifted.buffer, 3))[0].t, 5);
});

test("nothing, and a torn end, give what there is", () => {
  assert.deepEqual(decode(null), []);
  assert.deepEqual(decode(new DataView(new ArrayBuffer(0))), []);
  assert.equal(decode(bytes([...bare, 1, 20, 1])).length, 1);
  assert.equal(decode(bytes([...bare, 1, NaN, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])).length, 1);
});

test("what was decoded encodes to the same bytes", () => {
  const numbers = [...bare, 1, 12, 2, 0, 0, 1, 4, 1, 1, 1, 0, 9];
  const again = encode(decode(bytes(numbers)));
  assert.deepEqual([...new Float32Array(again.buffer)], numbers);
});
