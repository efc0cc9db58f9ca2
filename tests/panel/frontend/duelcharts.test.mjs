// The charts of a duel: where a seed's mark stands, and what stands beside the axes.

import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES } from "./sources.mjs";

const { chartsOf } = await import(`${SOURCES}/duelcharts.js`);

const block = (number, difference, favours = "") => ({ block: number, difference, favours, evidence: 1, for: "" });
const drawn = (blocks, mode = "max") => chartsOf({ blocks, mode, most: 8, needed: 40, metric: "accuracy" }, { dark: false, soft: "#888" })[0];

test("an arm without a number stands beyond all numbers, and gives the axis none", () => {
  const { curves: [alone], up } = drawn([block(1, null, "worse"), block(2, null, "worse")]);
  assert.deepEqual(up().map(([, text]) => text), ["worse", "0", "better"]);
  assert.ok(alone.y.every((y) => y < up()[0][0]), alone.y.join());
  const beside = drawn([block(1, 0.02), block(2, null, "better")]);
  assert.deepEqual(beside.up().map(([, text]) => text), ["-0.020", "0", "+0.020"]);
  assert.deepEqual(beside.curves[0].y.map((y) => Math.sign(y - 0.02)), [0, 1]);
  assert.ok(beside.range[1] >= beside.curves[0].y[1]);
});

test("seeds that are still to come are told beside the axis", () => {
  assert.deepEqual(drawn([block(2, 0.01)]).times, ["seed 2", "", "to come"]);
  assert.deepEqual(drawn(Array.from({ length: 8 }, (_, k) => block(k + 1, 0.01))).times, ["seed 1", "", "seed 8"]);
});
