import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES, filled, frame, lane } from "./sources.mjs";

const { areas, flowWords } = await import(`${SOURCES}/strip.js`);
const { isWeight, weighed } = await import(`${SOURCES}/weights.js`);
const { Store } = await import(`${SOURCES}/store.js`);
const LANES = [lane("a"), lane("b"), lane("c")];

function said(rows, window = 8) {
  const store = filled(Store, [frame(1, rows)], LANES);
  store.stream = { name: "s", window };
  return flowWords(store);
}

test("the strip names whom it concerns", () => {
  const rows = { 0: { fill: 1, lag: 0, rate: 250, computing: 0.1 }, 1: { fill: 8, lag: 7, rate: 255, computing: 0.8 }, 2: { lag: 2, rate: 252, computing: 0.1 } };
  assert.deepEqual(said(rows), { Buffer: "8 of 8 prepared", Lag: "7 behind: b", Speed: "about 252 each", "Share of compute": "80 % b" });
});

test("trials that differ have a span of speeds, one has a number, and nobody a dash", () => {
  assert.equal(said({ 0: { rate: 100 }, 1: { rate: 300 } }).Speed, "100 to 300");
  assert.equal(said({ 0: { rate: 100 } }).Speed, "100");
  assert.equal(said({ 0: { rate: 100 } }).Lag, "all at the front");
  assert.equal(said({ 0: { rate: NaN } }).Speed, "–");
  assert.deepEqual(Object.values(said({})), ["–", "–", "–", "–"]);
});

test("one that has timed out holds nobody, and is not the farthest behind", () => {
  assert.equal(said({ 0: { state: 2, lag: 90, fill: 90 }, 1: { lag: 1, fill: 3 } }).Lag, "1 behind: b");
  assert.equal(said({ 0: { state: 2, lag: 90, fill: 90 }, 1: { lag: 1, fill: 3 } }).Buffer, "3 of 8 prepared");
});

test("a weight is a number above 0, and the ranks of a group have one together", () => {
  assert.deepEqual(["2", "0.5", "0", "-1", "", "x", "Infinity"].map(isWeight), [true, true, false, false, false, false, false]);
  const lanes = [lane("bert[0]"), lane("bert[1]"), { ...lane("gone"), here: false }, lane("cnn")];
  assert.deepEqual(weighed({ lanes, stream: { weights: { late: 2, cnn: 3 } } }), ["bert", "cnn", "late"]);
});

test("an area has a gap where nobody computed, as lines have", () => {
  const share = [[0.5, 0.5, null, null, 1, 1], [1, 1, null, null, 1, 1]], at = [0, 1, 2, 3, 4, 5];
  const drawn = areas(share, at, (k) => k / 5);
  assert.equal(drawn.length, 2);
  for (const { d } of drawn) {
    const parts = d.split("Z").filter(Boolean).map((part) => part.match(/[ML]([\d.]+)/g).map((one) => Number(one.slice(1))));
    assert.equal(parts.length, 2, d);
    assert.ok(Math.max(...parts[0]) < Math.min(...parts[1]), d);
  }
  assert.equal(areas([[null, null]], [0, 1], (k) => k)[0].d, "");
});
