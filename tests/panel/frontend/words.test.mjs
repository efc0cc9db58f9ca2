import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES } from "./sources.mjs";

const words = await import(`${SOURCES}/words.js`);
const { metricNames, spark, visible } = await import(`${SOURCES}/table.js`);

test("times", () => {
  assert.equal(words.clock(72), "1:12");
  assert.equal(words.clock(3700), "1:01:40");
  assert.equal(words.clock(-3), "0:00");
  assert.deepEqual([words.ago(-120, true), words.ago(-60), words.ago(0)], ["2:00 ago", "1:00", "now"]);
});

test("numbers, and what is not known", () => {
  assert.deepEqual([612.4, 9.63, 12345, 0, NaN].map(words.count), ["612", "9.6", "12,345", "0", "–"]);
  assert.deepEqual([9, 9.63, 540].map(words.pace), ["9.0", "9.6", "540"]);
  assert.deepEqual([212.4, 3200, 1.5].map(words.mebibytes), ["212 MiB", "3.1 GiB", "1.5 MiB"]);
  assert.equal(words.percent(0.745), "75 %");
});

test("logged numbers: accuracies as per cent, others with few figures", () => {
  assert.equal(words.metric("accuracy", 0.958), "95.8 %");
  assert.equal(words.metric("val_acc", 0.5), "50.0 %");
  assert.equal(words.metric("accuracy", 95.8), "95.8");
  assert.equal(words.metric("loss", 0.1421), "0.142");
  assert.equal(words.metric("lr", 0.00012), "1.2e-4");
  assert.equal(words.metric("loss", NaN), "–");
});

test("an epoch counts what is done", () => {
  assert.equal(words.progress({ epoch: 2, position: 42 }, 63), "2.67");
  assert.equal(words.progress({ epoch: 2, position: 42 }, null), "3");
  assert.equal(words.progress({ epoch: -1, position: 0 }, 63), "–");
});

test("the sentence is cut where its numbers begin", () => {
  assert.deepEqual(words.sentence("wide sets the pace: a spends 38% held."), ["wide sets the pace:", " a spends 38\u00a0% held."]);
  assert.deepEqual(words.sentence("Done."), ["Done.", ""]);
});

test("an axis ends at a round number and stays there", () => {
  assert.deepEqual([7, 8, 612, 1.3, 0].map(words.roundTop), [8, 8, 800, 2, 1]);
  assert.equal(words.steadyTop(800, 700), 800);
  assert.equal(words.steadyTop(800, 900), 1000);
  assert.equal(words.steadyTop(800, 100), 100);
  assert.equal(words.steadyTop(0, 0), 1);
});

test("a young stream's charts show less time", () => {
  assert.deepEqual([0, 30, 31, 62, 100, 500].map((s) => words.spanFor(s, 120)), [30, 30, 60, 90, 120, 120]);
  assert.deepEqual([200, 500].map((s) => words.spanFor(s, 600)), [300, 600]);
});

test("states: parked with its time, ended with the stream", () => {
  assert.deepEqual(words.consumerState("parked", 41, true), { label: "parked 0:41", tone: "warn" });
  assert.equal(words.consumerState("streaming", 0, false).label, "ended");
  assert.equal(words.consumerState("gone", 0, true).label, "left");
});

test("a colour for each of eight trials, all different", () => {
  assert.equal(new Set(Array.from({ length: 8 }, (_, k) => words.colour(k))).size, 8);
  assert.equal(words.colour(8), words.colour(0));
});

test("loss and accuracy get the columns", () => {
  assert.deepEqual(metricNames([{ metrics: ["lr", "accuracy"] }, undefined, { metrics: ["loss"] }]), ["loss", "accuracy"]);
});

test("with many trials, those that left first give way", () => {
  const lanes = Array.from({ length: 20 }, (_, k) => ({ here: k < 5, since_s: k }));
  assert.deepEqual(visible(lanes), [0, 1, 2, 3, 4, 13, 14, 15, 16, 17, 18, 19]);
});

test("a curve stays in its box, flat ones too", () => {
  assert.equal(spark([1]), "");
  for (const values of [[1, 1, 1], [3, 1, 2]])
    for (const point of spark(values).split(" ")) {
      const [x, y] = point.split(",").map(Number);
      assert.ok(x >= 0 && x <= 56 && y >= 0 && y <= 18);
    }
});
