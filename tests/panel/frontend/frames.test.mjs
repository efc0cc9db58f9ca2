import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES, bytes } from "./sources.mjs";

const { decode, encode } = await import(`${SOURCES}/frames.js`);

test("a frame written by hand is read back, metrics and all", () => {
  const row = [2, 4, 7, 3, 608.5, 0.75, 0.25, 0, 1, 40, 2, 0.098, 0.97];
  const [frame] = decode(bytes([12.5, 10 + row.length, 9.5, 3, 1, 43, 12, 212, 106, 1, ...row]));
  assert.equal(frame.t, 12.5);
  assert.equal(frame.windowFill, 3);
  assert.equal(frame.batches, 106);
  assert.equal(frame.rows.length, 3);
  assert.equal(frame.rows[0], undefined);
  assert.equal(frame.rows[2].state, 4);
  assert.equal(frame.rows[2].samplesPerS, 608.5);
  assert.deepEqual([...frame.rows[2].metrics], [0.098, 0.97].map(Math.fround));
});

test("frames of different length lie end to end", () => {
  const bare = [0, 10, 1, 0, 0, 1, 1, 1, 1, 0];
  const full = [1, 21, 1, 0, 0, 2, 1, 1, 2, 0, 0, 1, 1, 0, 64, 1, 0, 0, 0, 2, 0];
  const frames = decode(bytes([...bare, ...full, ...bare]));
  assert.deepEqual(frames.map((f) => f.t), [0, 1, 0]);
  assert.deepEqual(frames.map((f) => f.rows.length), [0, 1, 0]);
});

test("a view that is not aligned, as messages have them, is read all the same", () => {
  const aligned = new Uint8Array(bytes([5, 10, 1, 0, 0, 1, 1, 1, 1, 0]).buffer);
  const shifted = new Uint8Array(aligned.length + 3);
  shifted.set(aligned, 3);
  assert.equal(decode(new DataView(shifted.buffer, 3))[0].t, 5);
});

test("nothing, and a torn end, give what there is", () => {
  assert.deepEqual(decode(null), []);
  assert.deepEqual(decode(new DataView(new ArrayBuffer(0))), []);
  const whole = [0, 10, 1, 0, 0, 1, 1, 1, 1, 0];
  assert.equal(decode(bytes([...whole, 1, 20, 1])).length, 1);
  assert.equal(decode(bytes([...whole, 1, NaN, 1, 0, 0, 0, 0, 0, 0, 0])).length, 1);
});

test("what was decoded encodes to the same bytes", () => {
  const numbers = [0, 10, 1, 0, 0, 1, 1, 1, 1, 0, 1, 10, 2, 0, 0, 1, 1, 1, 1, 0];
  const again = encode(decode(bytes(numbers)));
  assert.deepEqual([...new Float32Array(again.buffer)], numbers);
});
