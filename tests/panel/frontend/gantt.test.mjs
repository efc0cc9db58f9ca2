import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES } from "./sources.mjs";

const { rowsOf } = await import(`${SOURCES}/gantt.js`);

test("bars are parts of the whole plan, and the last that is known of a trial is its end", () => {
  const trials = [
    { name: "done", planned: [0, 10], actual: [0, 12], ahead: null },
    { name: "runs", planned: [0, 20], actual: [1, 15], ahead: [15, 40] },
    { name: "clone", planned: null, actual: null, ahead: null },
    { name: "held", planned: [0, 10], actual: [0, 12], ahead: null, paused: true },
    { name: "behind", planned: [10, 20], actual: null, ahead: null, held: true },
  ];
  const [done, runs, clone, held, behind] = rowsOf({ title: "plan", trials });
  assert.deepEqual([done.planned, done.end], ["0:10", "0:12 actual"]);
  assert.deepEqual(done.spans.map((span) => span && [span.left, span.width]), [[0, 25], [0, 30], null]);
  assert.deepEqual([runs.planned, runs.end], ["0:20", "0:40 predicted"]);
  assert.equal(runs.spans[2].words, "runs: predicted 0:15 to 0:40");
  assert.equal(held.end, "paused", "it has not ended, and nobody knows when it will");
  assert.equal(behind.end, "held up", "it waits for the place of one that is paused");
  assert.deepEqual([clone.planned, clone.end, clone.spans], ["–", "–", [null, null, null]]);
});

test("without a plan, and in one of which nothing can be done, there are no rows", () => {
  assert.deepEqual([rowsOf(null), rowsOf(undefined), rowsOf({ title: "plan", trials: [] })], [[], [], []]);
});
