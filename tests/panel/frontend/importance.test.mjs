import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES } from "./sources.mjs";

const { FEWEST, importanceOf, rankCorrelation, ranks, varianceShare } = await import(`${SOURCES}/importance.js`);
const { colouring } = await import(`${SOURCES}/scatter.js`);

test("ranks count from 1, and equal values share theirs", () => {
  assert.deepEqual(ranks([10, 30, 20, 30]), [1, 3.5, 2, 3.5]);
});

test("a rank correlation is that of the order, whatever the scale", () => {
  assert.equal(rankCorrelation([0.0001, 0.01, 1, 100], [1, 2, 3, 4]), 1);
  assert.equal(rankCorrelation([1, 2, 3, 4], [9, 7, 5, 1]), -1);
  assert.equal(rankCorrelation([1, 1, 1, 1], [9, 7, 5, 1]), 0);
  // scipy.stats.spearmanr([1, 2, 3, 4, 5, 5], [2, 1, 4, 3, 7, 5]).statistic
  assert.ok(Math.abs(rankCorrelation([1, 2, 3, 4, 5, 5], [2, 1, 4, 3, 7, 5]) - 0.8696565534786727) < 1e-12);
});

test("the share of the variance between words is all, or what chance leaves of none", () => {
  assert.equal(varianceShare(["a", "a", "b", "b", "c", "c"], [1, 1, 5, 5, 9, 9]), 1);
  assert.equal(varianceShare(["a", "b", "a", "b", "a", "b", "a", "b"], [1, 2, 4, 3, 5, 6, 8, 7]), 0);
  assert.equal(varianceShare(["a", "b", "c"], [1, 2, 3]), 0, "nothing is left to compare with");
});

test("importance needs enough trials, leaves out what does not differ or is a name, and has the largest first", () => {
  const of = (count) => Array.from({ length: count }, (_, k) => [[["lr", String(0.1 ** (k % 4))], ["opt", k % 2 ? "'sgd'" : "'adam'"], ["seed", "1"], ["note", `n${k}`]], (k % 4) + 10 * (k % 2)]);
  assert.deepEqual(importanceOf(of(FEWEST - 1)), { trials: FEWEST - 1, found: [] });
  const { trials, found } = importanceOf([...of(12), [[["lr", "1"]], NaN]]);
  assert.equal(trials, 12);
  assert.deepEqual(found.map(({ name, kind }) => [name, kind]), [["opt", "share"], ["lr", "correlation"]]);
  assert.ok(found[0].value > 0.7 && found[1].value < 0 && found[1].size === -found[1].value);
});

test("colours are by state, by word with a shape each, or by size from pale to full", () => {
  const state = colouring(null, (lane) => ["done", "failed"][lane], false);
  assert.deepEqual(state.legend([0, 1]).map(([mark, , text]) => [mark, text]), [["disc", "done"], ["cross", "failed"]]);
  const words = colouring(new Map([[0, "sgd"], [1, "adam"]]), () => "", false);
  assert.notEqual(words.of(0)[0], words.of(1)[0]);
  const sizes = colouring(new Map([[0, "1"], [1, "9"], [2, "5"]]), () => "", false);
  assert.deepEqual(sizes.legend([]).map(([, , text]) => text).sort(), ["1", "9"]);
  assert.notEqual(sizes.of(0)[1], sizes.of(1)[1]);
  assert.equal(sizes.of(7)[0], "ring", "it has no such value");
});
