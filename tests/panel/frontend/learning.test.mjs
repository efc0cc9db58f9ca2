import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { SOURCES, filled, lane } from "./sources.mjs";

const CASES = JSON.parse(readFileSync(new URL("./ranges.json", import.meta.url), "utf8"));
const { Store } = await import(`${SOURCES}/store.js`);
const { across, against, calmExtent, curvesOf, diverged, extent, fitsLog, inRange, nearest, ranked, setsOf, shortened, smooth, spread, valueAt } = await import(`${SOURCES}/learning.js`);
const near = (a, b) => Math.abs(a - b) < 1e-9;

test("a curve is found by its name in each lane, by batch, epoch or time", () => {
  const store = filled(Store, [], [lane("a", ["acc", "loss"]), lane("b", ["loss"]), lane("c"), undefined]);
  store.curves.add(0, 1, [1, 10, 0.5], 2);
  store.curves.add(0, 1, [2, 20, 1], 1);
  store.curves.add(1, 0, [3, NaN, 2], 5);
  assert.deepEqual(curvesOf(store, "loss", { axis: "batch", smooth: 0 }), [{ lane: 0, name: "a", x: [10, 20], at: [10, 20], counts: [1, 1], low: [2, 1], high: [2, 1], raw: [2, 1], sparse: false, y: [2, 1] }]);
  assert.deepEqual(curvesOf(store, "loss", { axis: "epoch", smooth: 0 }).map(({ x }) => x), [[0.5, 1], [2]]);
  assert.deepEqual(curvesOf(store, "loss", { axis: "time", smooth: 0 }).map(({ x }) => x), [[1, 2], [3]]);
});

test("what was set stands where its trial logged next, on whichever axis; before its first value it is not drawn", () => {
  const store = filled(Store, [], [lane("a", ["loss"]), lane("b")]);
  Object.assign(store, { originS: 100, changes: new Map([["a", [[99, "lr 1"], [101.5, "lr 1 → 0.5"], [110, "lr 0.5 → 0.1"]]], ["b", [[101, "lr 2"]]]]) });
  store.curves.add(0, 0, [1, 10, 0.5], 2);
  store.curves.add(0, 0, [2, 20, 1], 1);
  assert.deepEqual(setsOf(store, "loss", "batch"), [{ lane: 0, x: 20, text: "lr 1 → 0.5" }, { lane: 0, x: 20, text: "lr 0.5 → 0.1" }]);
  assert.deepEqual(setsOf(store, "loss", "time").map(({ x }) => x), [1.5, 10]);
});

test("about one value an epoch is drawn as it is, however many there are and however much others are smoothed", () => {
  const store = filled(Store, [], [{ ...lane("a", ["loss", "acc"]), sparse: ["acc"] }]);
  for (let k = 0; k < 100; k++) store.curves.add(0, 0, [k, 10 * k, k / 10], k % 2);
  for (let k = 0; k < 90; k++) store.curves.add(0, 1, [10 * k, 100 * k, k], k % 2);
  const [loss] = curvesOf(store, "loss", { axis: "batch", smooth: 0.9 }), [acc] = curvesOf(store, "acc", { axis: "batch", smooth: 0.9 });
  assert.ok(loss.y.slice(20).every((value) => value > 0.3 && value < 0.7));
  assert.deepEqual(acc.y, acc.raw);
});

test("of two values at one batch the last one counts", () => {
  const store = filled(Store, [], [lane("a", ["acc"])]);
  for (const [t, value] of [[1, 0.25], [2, 0.5], [3, 0.75]]) store.curves.add(0, 0, [t, t < 3 ? 10 : 20, 1], value);
  assert.deepEqual(curvesOf(store, "acc", { axis: "batch", smooth: 0 }).map(({ x, y }) => [x, y]), [[[10, 20], [0.5, 0.75]]]);
});

test("smoothing is a mean of what came before, by batches, begins at the first value and leaves out what is no number", () => {
  const ones = [1, 1, 1], at = [10, 20, 30];
  assert.deepEqual(smooth([4, 4, 4], at, ones, 50).map((v) => Math.round(v * 1e9) / 1e9), [4, 4, 4]);
  assert.deepEqual(smooth([1, 2], at, ones, 0), [1, 2]);
  const [a, b, c] = smooth([0, NaN, 1], at, ones, 20 / Math.log(2));
  assert.ok(a === 0 && Number.isNaN(b) && near(c, 2 / 3));
  const [, far] = smooth([0, 1], [0, 5000], ones, 22);
  assert.ok(near(far, 1), "what lies far behind does not count");
});

test("smoothed, joined stretches have the curve of the values that they are of", () => {
  const values = Array.from({ length: 4000 }, (_, k) => Math.exp(-k / 600) + 0.3 * Math.sin(2.3 * k)), at = values.map((_, k) => k), ones = values.map(() => 1);
  const fine = smooth(values, at, ones, 200), four = at.filter((k) => k % 4 === 3);
  const joined = smooth(four.map((k) => (values[k] + values[k - 1] + values[k - 2] + values[k - 3]) / 4), four, four.map(() => 4), 200);
  assert.ok(joined.every((value, j) => Math.abs(value - fine[four[j]]) < 0.01));
});

test("the difference to a trial is taken at the same batches, and only where both were", () => {
  const curve = (lane, x, raw) => ({ lane, x, at: x, counts: x.map(() => 1), raw, y: raw });
  const base = curve(0, [0, 10, 20], [4, 2, 1]);
  const [other] = against([base, curve(1, [5, 10, 30], [3.5, 2, 0])], 0);
  assert.deepEqual([other.x, other.y], [[5, 10], [0.5, 0]]);
  const line = (lane, step, less) => [Array.from({ length: 50 }, (_, k) => k * step)].map((x) => curve(lane, x, x.map((v) => 9 - v - less)))[0];
  const [far] = against([line(0, 2, 0), line(1, 1, 0.25)], 0, 0.9);
  assert.ok(far.y.every((v) => near(v, -0.25)), "smoothing does not change a difference that is always the same");
  assert.equal(valueAt(base, -1), null);
  assert.equal(valueAt(base, 15), 1.5);
});

test("the best is where its metric is good: low for a loss, high for an accuracy, nobody where nobody knows", () => {
  const curves = [{ lane: 0, y: [3, 1] }, { lane: 1, y: [2, NaN] }, { lane: 2, y: [NaN] }];
  assert.deepEqual(ranked(curves, -1).map((c) => c.lane), [0, 1, 2]);
  assert.deepEqual(ranked(curves, 1).map((c) => c.lane), [1, 0, 2]);
  assert.deepEqual(ranked(curves, 0).map((c) => c.lane), [0, 1, 2]);
});

test("an axis begins at 0 where its first point is near it, or is the only one", () => {
  assert.deepEqual([[3, 100], [60, 100], [63, 63], [0, 0], [-2, 30]].map(across), [[0, 100], [60, 100], [0, 63], [0, 1], [-2, 30]]);
});

test("nan and inf are drawn nowhere, a log axis leaves out what is not above 0", () => {
  assert.deepEqual(extent([[1, NaN, Infinity], [-3]], false), [-3, 1]);
  assert.deepEqual(extent([[0, 2, 4]], true), [2, 4]);
  assert.equal(extent([[NaN]], false), null);
  const noisy = { y: Array.from({ length: 1000 }, (_, k) => (k === 500 ? 1e9 : k / 1000)) };
  assert.ok(calmExtent([noisy], false)[1] < 2);
});

test("labels keep their distance, their order and their place", () => {
  const at = spread([50, 51, 52, 200], 14, 0, 100);
  assert.ok(at[0] < at[1] && at[1] < at[2] && at[3] <= 100);
  for (let k = 1; k < 4; k++) assert.ok(at[k] - at[k - 1] >= 14 - 1e-9);
});

test("names are shortened where they are alike", () => {
  const names = ["resnet18-wide-lr-0.1", "resnet18-wide-lr-0.01"];
  assert.deepEqual(Object.values(shortened(names)), ["…0.1", "…0.01"]);
  assert.deepEqual(shortened(["mlp", "cnn"]), { mlp: "mlp", cnn: "cnn" });
  assert.equal(shortened(["x".repeat(64)])["x".repeat(64)].length, 14);
  const middle = ["1", "2", "3"].map((digit) => `${"a".repeat(30)}${digit}${"b".repeat(33)}`), found = Object.values(shortened(middle));
  assert.equal(new Set(found).size, 3, found.join());
  assert.ok(found.every((name) => name.length <= 14), found.join());
  const end = Object.values(shortened(["1", "2"].map((digit) => `${"a".repeat(63)}${digit}`)));
  assert.equal(new Set(end).size, 2, end.join());
});

test("names of a sweep are shortened by what they share, whatever else was there before", () => {
  const sweep = ["1", "2"].flatMap((width) => ["0.003", "0.0003"].map((lr) => `lambda-width${width}-lr${lr}`));
  assert.equal(shortened(["mlp", "wide-cnn", ...sweep], 17)[sweep[0]], "…width1-lr0.003");
  const narrow = Object.values(shortened(["mlp", "wide-cnn", ...sweep], 11));
  assert.deepEqual(narrow.slice(0, 3), ["mlp", "wide-cnn", "…1…0.003"]);
  assert.equal(new Set(narrow).size, 6, narrow.join());
  assert.ok(narrow.every((name) => name.length <= 11), narrow.join());
});

test("names of a sweep are never cut in the midst of a number or a word, and all in one way", () => {
  const names = ["0.3", "0.03", "0.001"].flatMap((lr) => ["mlp", "cnn"].map((net) => `train-lr${lr}-net-${net}`));
  const short = (most) => Object.values(shortened(names, most));
  assert.deepEqual(short(17).slice(2, 4), ["…lr0.03-net-mlp", "…lr0.03-net-cnn"]);
  assert.deepEqual(short(14).slice(2, 4), ["…lr0.03…mlp", "…lr0.03…cnn"]);
  assert.deepEqual(short(11).slice(3), ["…0.03…cnn", "…0.001…mlp", "…0.001…cnn"]);
  assert.deepEqual(short(9).slice(3), ["…0.03…cnn", "…0.001…mlp", "…0.001…cnn"], "a letter more than there is room for");
  assert.deepEqual(Object.values(shortened([32, 512].map((width) => `train-width${width}-epochs${width - 26}`), 11)), ["…w32-e6", "…w512-e486"]);
});

test("names of three parameters are cut to their values on the narrowest page too", () => {
  const names = ["0.0003", "0.03"].flatMap((lr) => [64, 1024].flatMap((width) => ["0.0", "0.1"].map((decay) => `train-lr${lr}-width${width}-weight_decay${decay}`)));
  for (const most of [9, 6]) assert.deepEqual(Object.values(shortened(names, most)).slice(1, 3), ["…0.0003…64…0.1", "…0.0003…1024…0.0"]);
});

test("a sweep of two parameters is cut to little more than there is room for", () => {
  const names = [32, 512].flatMap((width) => [6, 12, 30].map((epochs) => `train-width${width}-epochs${epochs}`));
  const short = Object.values(shortened(names, 11));
  assert.equal(new Set(short).size, names.length, short.join());
  assert.ok(short.every((name) => name.length <= 13), short.join());
});

test("the point that is nearest", () => {
  assert.deepEqual([-1, 0.4, 0.6, 9].map((at) => nearest([0, 1, 2], at)), [0, 0, 1, 2]);
  assert.equal(nearest([], 1), -1);
});

test("no two names are shortened to the same, also where two families end alike", () => {
  for (const most of [10, 14]) {
    for (const stems of [["train", "plan-train"], ["resnet18-wide", "resnet34-wide"], ["a-long-stem-of-one", "a-long-stem-of-two"]]) {
      const names = stems.flatMap((stem) => [16, 256, 2048, 4096].map((width) => `${stem}-width${width}`));
      const short = shortened(names, most);
      assert.equal(new Set(names.map((name) => short[name])).size, names.length, JSON.stringify(short));
      for (const name of names) assert.ok(short[name].length <= name.length, short[name]);
    }
  }
});

test("a log scale is for what is above 0, and for what is good where it is high only if it was chosen for that alone", () => {
  const curve = (...low) => ({ low }), ways = { loss: -1, f1: 1 };
  const fits = (name, curves, ...chosen) => fitsLog(name, curves, chosen, ways);
  assert.equal(fits("loss", [curve(2, NaN, 0.5)], "loss", "val_acc"), true);
  assert.equal(fits("loss", [curve(2, NaN, 0.5)]), false);
  assert.equal(fits("loss", [curve(2, 0.5), curve(1, 0)], "loss"), false);
  for (const name of ["val_acc", "f1"]) {
    assert.equal(fits(name, [curve(0.5, 0.75)], "loss", name), false);
    assert.equal(fits(name, [curve(0.5, 0.75)], name), true);
    assert.equal(fits(name, [curve(0, 0.75)], name), false);
  }
});

test("trials that nobody waits for do not set the range where they lie far outside the others, and do where they are alone", () => {
  const curve = (...y) => ({ x: y.map((_, k) => 10 * k), y }), good = curve(2.3, 1, 0.1), near = curve(2.3, 4), far = curve(2, 5000), never = () => false;
  const gaveUp = (one) => one === near || one === far, none = { x: [], y: [] };
  assert.deepEqual(inRange([good, near, far], gaveUp, -1), [good, near, none]);
  assert.deepEqual(inRange([good, far], never), [good, far], "one that trains well is looked at");
  assert.deepEqual(inRange([near, far], gaveUp), [near, far]);
  assert.deepEqual(inRange([curve(1), far], gaveUp)[1], far, "a point has no height");
  assert.deepEqual([[far, -1], [good, -1], [curve(2.3, 2.4), -1], [curve(0.12, 0.1), 1], [curve(0.5, -9), 1], [curve(1, NaN), 0], [curve(9), -1]].map(([one, way]) => diverged(one, way)), [true, false, false, false, true, true, false]);
});

for (const { what, way, lines, counts } of CASES) {
  test(`the range of a chart, as reports have it: ${what}`, () => {
    const number = (value) => value ?? NaN, curves = lines.map(({ xs, ys }) => ({ x: xs, y: ys.map(number) }));
    assert.deepEqual(inRange(curves, (curve) => lines[curves.indexOf(curve)].gave_up, way).map(({ y }) => y), counts.map((ys) => ys.map(number)));
  });
}
