import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES } from "./sources.mjs";

const { isShare, textsOf, ticks, timeTicks } = await import(`${SOURCES}/ticks.js`);
const { labelsOf, numberAxis } = await import(`${SOURCES}/sweep.js`);

const written = (low, high, most, log, share) => textsOf(ticks(low, high, most, { log }), share);

test("axes have round ticks, a log axis those of its decades", () => {
  assert.deepEqual(ticks(0, 2.3, 5), [0, 0.5, 1, 1.5, 2]);
  assert.deepEqual(ticks(0.02, 3, 6, { log: true }), [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2]);
  assert.deepEqual(ticks(0.01, 30, 4, { log: true }), [0.01, 0.1, 1, 10]);
  assert.deepEqual(ticks(5, 5, 5), [5]);
  assert.deepEqual(ticks(3, 5, 5, { least: 1 }), [3, 4, 5], "no halves of a batch");
});

test("on no axis two ticks have one text, and there are few of them, however far one looks into it", () => {
  const ranges = [[1e-300, 1e300], [1e-9, 1e9], [0.999, 1.001], [1.05, 1.2], [0.115, 0.121], [0.02, 3], [0.6, 4.5], [99990, 150000], [3e-6, 8e-6], [1e6, 1.0001e6], [0.97, 0.9702], [0, 3], [-1e30, 1e30], [-2e-5, 3e-5], [0, 1e5], [0.123456, 0.123457]];
  for (const [low, high] of ranges) {
    for (const most of [2, 4, 5, 8]) {
      for (const log of low > 0 ? [false, true] : [false]) {
        for (const share of [false, true]) {
          const texts = written(low, high, most, log, share), told = `${low} to ${high}, ${most}${log ? ", log" : ""}: ${texts.join(" ")}`;
          assert.ok(texts.length >= 1 && texts.length <= most + 1, told);
          assert.equal(new Set(texts).size, texts.length, told);
          assert.ok(texts.every((text, k) => Math.abs(Number(text.replace(" %", "")) / (share ? 100 : 1) - ticks(low, high, most, { log })[k]) <= 1e-9 * Math.abs(Number(text.replace(" %", "")))), told);
        }
      }
    }
  }
});

test("a number is as short as its axis lets it be", () => {
  assert.deepEqual(written(1.05, 1.2, 5, true), ["1.05", "1.10", "1.15", "1.20"]);
  assert.deepEqual(written(0, 2.3, 5), ["0", "0.5", "1.0", "1.5", "2.0"]);
  assert.deepEqual(written(0.02, 3, 6, true), ["0.02", "0.05", "0.1", "0.2", "0.5", "1", "2"]);
  assert.deepEqual(written(0.978, 0.9803, 5, false, true), ["97.80 %", "97.85 %", "97.90 %", "97.95 %", "98.00 %"]);
  assert.deepEqual(written(0, 200000, 5), ["0", "5.0e+4", "1.0e+5", "1.5e+5", "2.0e+5"]);
  assert.deepEqual(written(3e-6, 8e-6, 5), ["3e-6", "4e-6", "5e-6", "6e-6", "7e-6", "8e-6"]);
});

test("an axis of time has whole seconds, minutes, hours or days", () => {
  assert.deepEqual(timeTicks(0, 400, 4), [0, 120, 240, 360]);
  assert.deepEqual(timeTicks(3, 7, 5), [3, 4, 5, 6, 7]);
  assert.deepEqual(timeTicks(0, 30000, 4), [0, 7200, 14400, 21600, 28800]);
  assert.deepEqual(timeTicks(0, 86400 * 9, 3), [0, 3, 6, 9].map((day) => 86400 * day));
});

test("numbers beside an axis of a sweep differ too", () => {
  const texts = labelsOf(numberAxis("loss", [[0, 1.051], [1, 1.199]])).map(([, text]) => text);
  assert.equal(new Set(texts).size, texts.length, texts.join(" "));
});

test("accuracies are per cent where they lie between 0 and 1", () => {
  assert.equal(isShare("val_acc", 0.1, 1.05), true);
  assert.equal(isShare("val_acc", 10, 95), false);
  assert.equal(isShare("loss", 0, 1), false);
});
