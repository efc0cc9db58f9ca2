import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES } from "./sources.mjs";

const words = await import(`${SOURCES}/words.js`);
const { metricsOf } = await import(`${SOURCES}/lanes.js`);
const { rowsOf } = await import(`${SOURCES}/details.js`);
const { pacesOf } = await import(`${SOURCES}/paces.js`);
const { spark } = await import(`${SOURCES}/row.js`);
const { shapeOf } = await import(`${SOURCES}/shapes.js`);
const { COLOURS, DARK, again, colour, paint } = await import(`${SOURCES}/theme.js`);

test("how long all trials still take is one number, with words or without", () => {
  const all = { leftS: 750, lowS: 660, highS: 840 };
  assert.deepEqual(words.leftOf(all), ["12:30", "(11:00 to 14:00)"]);
  const noon = new Date(2026, 10, 25, 12).getTime();
  assert.equal(words.allLeft(all, noon), "all done in 12:30, at 12:12 (11:00 to 14:00)");
  for (const none of [words.NO_ETA, { ...all, leftS: 3600000 }]) assert.deepEqual([words.leftOf(none), words.allLeft(none, noon)], [["", ""], ""]);
});

test("times", () => {
  assert.equal(words.clock(72), "1:12");
  assert.equal(words.clock(3700), "1:01:40");
  assert.equal(words.clock(-3), "0:00");
  assert.deepEqual([words.ago(-120, true), words.ago(-60), words.ago(0)], ["2:00 ago", "1:00", "now"]);
  assert.deepEqual([words.ago(-120, true, true), words.ago(0, false, true)], ["2:00 before", "end"]);
});

test("numbers, and what is not known", () => {
  assert.deepEqual([612.4, 9.63, 12345, 0, NaN].map(words.count), ["612", "9.6", "12,345", "0", "–"]);
  assert.deepEqual([9, 9.63, 540].map(words.pace), ["9.0", "9.6", "540"]);
  assert.deepEqual([212.4, 3200, 1.5].map(words.mebibytes), ["212 MiB", "3.1 GiB", "1.5 MiB"]);
  assert.equal(words.percent(0.745), "75 %");
});

test("what each trial does, and would do alone", () => {
  const rows = [{ samplesPerS: 612 }, undefined, { samplesPerS: 0 }], paces = [{ stepMs: 12.34, alonePerS: 5186 }];
  const lanes = ["a", "b", "c"].map((name) => ({ name }));
  const weighed = pacesOf({ lanes, last: { rows }, paces, stream: { pacing: "weights (a 2, others 1)", weights: { a: 2 } } });
  assert.deepEqual(weighed.map((row) => [row.name, row.step, row.alone, row.now, row.weight]), [["a", "12.3 ms", "5,186", "612", "2"], ["c", "–", "–", "0", "1"]]);
  assert.deepEqual(pacesOf({ lanes, last: { rows }, paces, stream: {} }).map((row) => row.weight), ["–", "–"]);
  assert.deepEqual(pacesOf({ lanes, last: null, paces, stream: {} }), []);
});

test("logged numbers: accuracies as per cent, others with few figures", () => {
  assert.equal(words.metric("accuracy", 0.958), "95.8 %");
  assert.equal(words.metric("val_acc", 0.5), "50.0 %");
  assert.equal(words.metric("accuracy", 95.8), "95.8");
  for (const name of ["valAcc", "top1acc", "acc@1", "ACC", "TEST_ACCURACY"]) assert.equal(words.metric(name, 0.5), "50.0 %", name);
  for (const name of ["grad_accum", "accumulated_loss", "acceleration", "ACCEPTED"]) assert.equal(words.metric(name, 0.5), "0.500", name);
  assert.equal(words.metric("loss", 0.1421), "0.142");
  assert.equal(words.metric("lr", 0.00012), "0.00012");
  assert.deepEqual([NaN, Infinity, -Infinity, undefined].map((v) => words.metric("loss", v)), ["nan", "inf", "-inf", "–"]);
});

test("where the time of a trial went is not said before it is known", () => {
  assert.equal(words.spentWords({ computing: NaN, waiting: NaN, held: NaN }), "no time yet", "it was all between epochs");
  assert.match(words.spentWords({ computing: 0, waiting: 0, held: 0 }), /between epochs 100 %/);
});

test("an epoch counts what is done", () => {
  assert.equal(words.progress({ epochs: 2.667 }, 63), "2.67");
  assert.equal(words.progress({ epochs: 3 }, null), "3");
  assert.equal(words.progress({ epochs: -1 }, 63), "–");
});

test("the sentence begins with its lead", () => {
  const say = { text: "wide sets the pace. a waits for slower trials 38 % of its time.", lead: 19 };
  assert.deepEqual(words.sentence(say), ["wide sets the pace.", " a waits for slower trials 38\u00a0% of its time."]);
  assert.deepEqual(words.sentence({ text: "No stream yet: start one.", lead: 0 }), ["No stream yet:", " start one."]);
  assert.deepEqual(words.sentence({ text: "Done.", lead: 0 }), ["", "Done."]);
});

test("a recording says when it was", () => {
  assert.match(words.streamWord("recording", Date.UTC(2026, 10, 21, 12) / 1000), /^recording of 21 Nov 2026, \d\d:00$/);
  assert.equal(words.streamWord("recording", 0), "recording");
  assert.deepEqual(["serving", "gone", "failed"].map((state) => words.streamWord(state)), ["", "ended", "failed"]);
});

test("an axis ends at a round number", () => {
  assert.deepEqual([7, 8, 612, 1.3, 0].map(words.roundTop), [8, 8, 800, 2, 1]);
});

test("memory of a whole, and cores", () => {
  assert.equal(words.usedOf(3170, 16384), "3.1 of 16 GiB");
  assert.equal(words.usedOf(512, 81920), "512 MiB of 80 GiB");
  assert.deepEqual([0.61, 12.34, NaN].map(words.cores), ["0.61", "12.3", "–"]);
});

test("who uses the machine: the loader, trials that are seen, all, GPUs", () => {
  const process = { cpu: 0.5, memoryMiB: 100, cores: 1, gpuMiB: 1024 };
  const machine = { cores: 4, cpu: 1.5, usedMiB: 2048, totalMiB: 4096, producer: process, trials: [undefined, process], gpus: [{ index: 0, busy: 0.5, usedMiB: 1024, totalMiB: 2048 }] };
  const rows = rowsOf({ machine, lanes: [{ name: "a" }, { name: "b" }], gpus: ["A100"] });
  assert.deepEqual(rows.map((row) => row.name), ["loader and its workers", "b", "all processes", "GPU 0 A100"]);
  assert.equal(rows[1].colour, paint(1));
  assert.deepEqual([rows[1].gpu, rows[2].memory, rows[3].busy], ["1.0 GiB", "2.0 of 4.0 GiB", "50 %"]);
});

test("a young stream's charts show less time", () => {
  assert.deepEqual([0, 30, 31, 62, 100, 500].map((s) => words.spanFor(s, 120)), [30, 30, 60, 90, 120, 120]);
  assert.deepEqual([200, 500].map((s) => words.spanFor(s, 600)), [300, 600]);
  assert.deepEqual([200, 5000].map((s) => words.spanFor(s, Infinity)), [300, 7200]);
});

test("states: timed out, ended with the stream", () => {
  assert.deepEqual(words.consumerState("timed out", 41, true), { label: "timed out", tone: "warn" });
  assert.equal(words.consumerState("streaming", 0, false).label, "ended");
  assert.equal(words.consumerState("gone", 0, true).label, "left");
});

test("a colour for each of eight trials, all different", () => {
  assert.equal(new Set(Array.from({ length: 8 }, (_, k) => colour(k))).size, 8);
  assert.equal(COLOURS.length, 8);
  assert.deepEqual([colour(8), again(8), again(0)], [colour(0), true, false]);
});

test("colour-blind people tell any two colours apart, and each stands out on its ground", () => {
  // Machado, Oliveira and Fernandes (2009): how the page looks without one kind of cones; distances in OKLab
  const seen = {
    all: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    protan: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    deutan: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    tritan: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
  };
  const times = (rows, v) => rows.map((row) => row.reduce((sum, part, k) => sum + part * v[k], 0));
  const linear = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16) / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  const oklab = (rgb) => {
    const lms = times([[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566], [0.0883024619, 0.2817188376, 0.6299787005]], rgb.map((c) => Math.min(1, Math.max(0, c))));
    return times([[0.2104542553, 0.793617785, -0.0040720468], [1.9779984951, -2.428592205, 0.4505937099], [0.0259040371, 0.7827717662, -0.808675766]], lms.map(Math.cbrt));
  };
  const light = (hex) => times([[0.2126, 0.7152, 0.0722]], linear(hex))[0];
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  for (const [palette, ground] of [[COLOURS, "#ffffff"], [DARK, "#111418"]]) {
    for (const [eyes, rows] of Object.entries(seen)) {
      const places = palette.map((hex) => oklab(times(rows, linear(hex))));
      places.forEach((a, i) => places.slice(0, i).forEach((b, k) => {
        assert.ok(Math.hypot(...a.map((v, at) => v - b[at])) > 0.085, `${eyes}: ${palette[i]} and ${palette[k]}`);
      }));
    }
    for (const hex of palette) assert.ok(contrast(hex, ground) >= 3, `${hex} on ${ground}`);
  }
});

test("no two of fifty trials have the same shape in the same colour", () => {
  const pairs = Array.from({ length: 50 }, (_, lane) => `${shapeOf(lane)} ${colour(lane)}`);
  assert.equal(new Set(pairs).size, 50);
});

test("loss and accuracy come first: they get the columns", () => {
  assert.deepEqual(metricsOf([{ metrics: ["lr", "accuracy"] }, undefined, { metrics: ["loss"] }]), ["loss", "accuracy", "lr"]);
});

test("a curve stays in its box, flat ones too", () => {
  assert.equal(spark([1]), "");
  for (const values of [[1, 1, 1], [3, 1, 2]])
    for (const point of spark(values).split(" ")) {
      const [x, y] = point.split(",").map(Number);
      assert.ok(x >= 0 && x <= 56 && y >= 0 && y <= 18);
    }
});

test("the time of day at which all will be done is the reader's, with the day where it is another", () => {
  const at = new Date(2026, 10, 26, 13, 50, 30).getTime();
  assert.equal(words.hourIn(750, at), "14:03");
  assert.equal(words.hourIn(12 * 3600, at), "Fri 01:50");
  assert.equal(words.hourIn(9 * 86400, at), "5 Dec 13:50");
});

test("what is left of a trial says what it is of", () => {
  assert.equal(words.leftWords({ leftS: 173, epochs: 5 }), "2:53 left");
  assert.equal(words.leftWords({ leftS: 9, epochs: 0 }), "ends in 0:09");
  assert.equal(words.leftWords(words.NO_ETA), "");
  assert.deepEqual([["3.62", 5], ["3.62", 0], ["5.40", 5], ["–", 5]].map(([epochs, all]) => words.ofAll(epochs, all)), ["3.62 of 5", "3.62", "5.40", "–"]);
});
