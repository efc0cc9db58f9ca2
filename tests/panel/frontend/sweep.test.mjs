import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES, lane } from "./sources.mjs";

const { axesOf, bestSoFar, labelsOf, lanesOfSweeps, numberAxis } = await import(`${SOURCES}/sweep.js`);

test("the best so far goes one way only, steps where it is beaten, and names who has it", () => {
  const curves = [{ lane: 0, x: [0, 2, 4], y: [3, 2, 2.5] }, { lane: 1, x: [1, 3, 6], y: [NaN, 1, 4] }];
  assert.deepEqual(bestSoFar(curves, -1), { lane: 1, x: [0, 2, 2, 3, 3, 6], raw: [3, 3, 2, 2, 1, 1], y: [3, 3, 2, 2, 1, 1] });
  assert.equal(bestSoFar(curves, 1).lane, 1);
  assert.deepEqual(bestSoFar(curves, 1).y, [3, 3, 4, 4]);
  assert.equal(bestSoFar([{ lane: 0, x: [1], y: [NaN] }], 1), null);
});

test("parameters that differ have an axis: numbers, numbers of many sizes, words", () => {
  const lanes = ["a", "b", "c", "elsewhere"].map((name) => lane(name));
  const params = new Map(["a", "b", "c"].map((name, k) => [name, [["lr", ["0.0001", "0.01", "1"][k]], ["width", String(16 + 8 * k)], ["opt", k ? "adam" : "sgd"], ["seed", "1"], ["note", k ? "x" : ""]]]));
  const axes = axesOf([...lanes, undefined], params);
  assert.deepEqual(axes.map(({ name, kind }) => [name, kind]), [["lr", "log"], ["width", "number"], ["opt", "word"], ["note", "word"]]);
  assert.deepEqual([...axes[0].at].map(([k, at]) => [k, Number(at.toFixed(3))]), [[0, 0], [1, 0.5], [2, 1]]);
  assert.deepEqual([...axes[2].at], [[0, 1], [1, 0], [2, 0]]);
  assert.deepEqual(labelsOf(axes[0]), [[0, "0.0001"], [0.5, "0.01"], [1, "1"]]);
  assert.deepEqual(labelsOf(axes[1]), [[0, "16"], [0.5, "24"], [1, "32"]], "the values of the grid");
  const drawn = new Map(Array.from({ length: 9 }, (_, k) => [`t${k}`, [["lr", String(10 ** (-4 + k / 2))]]]));
  const [wide] = axesOf([...drawn.keys()].map((name) => lane(name)), drawn);
  assert.deepEqual(labelsOf(wide), [[0, "0.0001"], [0.25, "0.001"], [0.5, "0.01"], [0.75, "0.1"], [1, "1"]]);
  assert.deepEqual(axesOf(lanes, new Map()), []);
});

test("of a loss the lowest is on top", () => {
  const axis = numberAxis("loss", [[0, 0.5], [1, 0.25]], -1);
  assert.deepEqual([...axis.at], [[0, 0], [1, 1]]);
  assert.deepEqual(labelsOf(axis), [[1, "0.25"], [0.8, "0.3"], [0.4, "0.4"], [0, "0.5"]]);
  assert.deepEqual([...numberAxis("loss", [[0, 0.5]]).at], [[0, 0]]);
});

test("a sweep's view is of the trials of sweeps; of all, where there is none", () => {
  const lanes = [lane("alone"), lane("a"), undefined, lane("b")];
  assert.deepEqual([...lanesOfSweeps(lanes, { a: "s", b: "s" })], [1, 3]);
  assert.deepEqual([...lanesOfSweeps(lanes, {})], [0, 1, 3]);
});
