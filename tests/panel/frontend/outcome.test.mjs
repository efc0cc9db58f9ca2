// What came out: the best trial, how all ended, and what a screen reader hears of it.

import assert from "node:assert/strict";
import { test } from "node:test";
import { aboutMetric, decisive, isOver, outcome, span, usual } from "../../../tsnb/panel/frontend/src/outcome.js";
import { Numbers } from "../../../tsnb/panel/frontend/src/store.js";

function storeOf(lanes, ways, state = "idle") {
  const store = new Numbers();
  return Object.assign(store, { lanes, ways, state, n: 1 });
}
const lane = (name, end, last) => ({ name, here: !end, end, last, metrics: Object.keys(last) });
const three = [lane("mlp", "done", { loss: 0.1, accuracy: 0.9 }), lane("cnn", "done", { loss: 0.3, accuracy: 0.97 }), lane("vit", "failed", { loss: 0.2, accuracy: 0.99 })];
const ways = { loss: -1, accuracy: 1 };

test("the best of those that are done is told by its accuracy, and how all ended", () => {
  const store = storeOf(three, ways);
  assert.equal(decisive(store), "accuracy");
  assert.deepEqual(outcome(store), ["cnn is best: accuracy 97.0 %.", "2 done, 1 failed. vit ended early with 99.0 %."]);
  const lost = [...three.slice(0, 2), lane("vit", "stopped", { loss: 0.2, accuracy: 0.96 })];
  assert.equal(outcome(storeOf(lost, ways))[1], "2 done, 1 stopped.", "it was no better");
});

test("the arms of a duel are told by its verdict, whichever has the best number", () => {
  const store = Object.assign(storeOf(three, ways), { say: { duels: "Duel d: no difference found." } });
  assert.deepEqual(outcome(store), ["Duel d: no difference found.", "2 done, 1 failed."]);
});

test("the number by which the best is told is among those that are shown, and a column says what it has", () => {
  const logged = (...names) => storeOf([lane("a", "", Object.fromEntries(names.map((name) => [name, 1])))], { train_loss: -1, val_loss: -1, val_accuracy: 1 });
  assert.deepEqual(usual(logged("train_loss", "val_loss", "val_accuracy"), 2), ["train_loss", "val_accuracy"]);
  assert.deepEqual(usual(logged("train_loss", "val_loss", "lr"), 2), ["train_loss", "val_loss"]);
  assert.deepEqual(usual(logged("lr", "gap"), 2), ["lr", "gap"], "nobody knows which way they are good");
  assert.match(aboutMetric("val_loss", -1), /^val_loss: the last value .* Low is better, and a star/);
  assert.match(aboutMetric("gap"), /records.direction/);
});

test("another notebook's sweep is told by what the stream says that its rule decides by", () => {
  assert.equal(decisive(Object.assign(storeOf(three, ways), { rule: "loss" })), "loss");
  assert.equal(decisive(Object.assign(storeOf(three, ways), { rule: "loss", rules: { s: "accuracy" }, sweeps: { mlp: "s" } })), "accuracy");
});

test("of a sweep the best is told by the number by which its rule decides", () => {
  const store = Object.assign(storeOf(three, ways), { sweeps: { mlp: "s", cnn: "s", vit: "t" }, rules: { s: "loss" } });
  assert.deepEqual([decisive(store, [0, 1]), decisive(store, [2]), decisive(store, [0, 2]), decisive(store)], ["loss", "accuracy", "loss", "loss"]);
  assert.equal(outcome(store)[0], "mlp is best: loss 0.100.");
  Object.assign(store, { rules: { s: "loss", t: "accuracy" } });
  assert.equal(decisive(store), "accuracy", "two rules decide by different numbers");
});

test("trials that are equal to the best are named, but not one that failed", () => {
  const equal = ["c", "a", "b"].map((name) => lane(name, "done", { accuracy: 0.974811 }));
  assert.equal(outcome(storeOf(equal, ways))[0], "a is best: accuracy 97.5 %, equal to b and c.");
  assert.equal(outcome(storeOf([...equal.slice(0, 2), lane("b", "failed", { accuracy: 0.974811 })], ways))[0], "a is best: accuracy 97.5 %, equal to c.");
  const many = Array.from({ length: 9 }, (_, k) => lane(`t${k}`, "done", { accuracy: 0.5 }));
  assert.equal(outcome(storeOf(many, ways))[0], "t0 is best: accuracy 50.0 %, equal to 8 others.");
});

test("where nobody knows which way is good, only how they ended is told", () => {
  assert.deepEqual(outcome(storeOf(three, {})), ["2 done, 1 failed.", ""]);
  assert.deepEqual(outcome(storeOf([lane("mlp", "", { loss: 1 })], ways)), ["", ""]);
});

test("those that were there when the stream ended are counted as their rows say", () => {
  const still = storeOf([...three.slice(0, 2), lane("vit", "", {})], ways, "gone");
  assert.equal(outcome(still)[1], "2 done, 1 ended.");
  const left = [lane("vit", "left", {}), { ...lane("gone", "", {}), here: false }, { ...lane("queued", "", {}), here: false, unknown: true }];
  assert.equal(outcome(storeOf([...three.slice(0, 2), ...left], ways))[1], "2 done, 2 ended.", "no trial is in no count");
});

test("what is shown of a number changes for all that show it at once", () => {
  const store = storeOf(three.map((one) => ({ ...one })), ways);
  assert.equal(store.shown(0, "loss"), 0.1);
  store.lanes[0].last = { loss: 0.05 };
  assert.deepEqual([store.shown(0, "loss"), store.value(0, "loss")], [0.1, 0.05]);
  store.renew();
  assert.equal(store.shown(0, "loss"), 0.05);
});

test("it is over when every trial has ended, or the stream has", () => {
  const still = [...three.slice(0, 2), lane("vit", "", { loss: 0.2 })];
  assert.equal(isOver(storeOf(three, ways)), true);
  assert.equal(isOver(storeOf(still, ways)), false);
  assert.equal(isOver(storeOf(still, ways, "gone")), true);
  const leaves = [...three.slice(0, 2), { ...lane("vit", "left", { accuracy: 0.99 }), since_s: 9 }], at = (t) => Object.assign(storeOf(leaves, ways), { last: { t } });
  assert.equal(isOver(at(9.5)), false, "it tells its end in a moment");
  assert.equal(isOver(at(12)), true, "nobody tells it");
  assert.equal(isOver(Object.assign(at(9.5), { recorded: true })), true);
  assert.equal(isOver(storeOf([...three, { ...lane("next", "", {}), here: false, pending: "queued: memory" }], ways)), false);
});

test("how long the trials trained is what the kernel told, however much of it this page has seen", () => {
  const nowMs = 1_790_000_100_000, store = Object.assign(storeOf(three, ways), { originS: 1_790_000_000, say: { trained: [-20, 2.75, 12] } });
  assert.match(span(store, nowMs), /^Trained for 0:12, ended at \d+:\d+\.$/);
  assert.equal(span(Object.assign(store, { say: {} }), nowMs), "");
});
