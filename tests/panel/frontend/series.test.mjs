import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES, bytes, frame, lane } from "./sources.mjs";

const { decode } = await import(`${SOURCES}/frames.js`);
const { Reel } = await import(`${SOURCES}/reel.js`);
const { cpuSeries, series, timeline, whole } = await import(`${SOURCES}/series.js`);

const LANES = [lane("a"), lane("b")];
const reel = (frames) => new Reel(decode(bytes(frames.flat())));
const drawn = (frames, spanS = 60, lanes = LANES) => series(reel(frames), lanes, spanS);
const near = (a, b) => Math.abs(a - b) < 1e-6;

test("shares of compute stack up to one, lane 0 at the bottom", () => {
  const { share, own } = drawn([frame(0, { 0: { computing: 0.2 }, 1: { computing: 0.6 } })]);
  assert.ok(near(own[0][0], 0.25) && near(share[0][0], 0.25) && near(share[1][0], 1));
});

test("where nobody computes there is no share, not a division by zero", () => {
  assert.deepEqual(drawn([frame(0, { 0: {}, 1: {} })]).share, [[null], [null]]);
});

test("a trial that is not there yet is unknown, not zero", () => {
  const { lag, fill, rate } = drawn([frame(0, { 0: { lag: 1 } }), frame(1, { 0: { lag: 1 }, 1: { lag: 3, fill: 2, rate: 9 } })]);
  assert.deepEqual([lag[1], fill[1], rate[1]], [[null, 3], [null, 2], [null, 9]]);
});

test("a silence is a gap, not a line across it", () => {
  const { x, lag } = drawn([frame(0, { 0: { lag: 1 } }), frame(50, { 0: { lag: 1 } })]);
  assert.equal(x.length, 3);
  assert.deepEqual(lag[0], [1, null, 1]);
});

test("only the span that is asked for is drawn, and time counts back from the last frame", () => {
  const { x } = drawn(Array.from({ length: 200 }, (_, k) => frame(k, { 0: {} })), 30);
  assert.equal(x[x.length - 1], 0);
  assert.ok(x[0] >= -31 && x.length <= 32);
});

test("ten minutes at four ticks a second are drawn with a few hundred points, each the mean of its bin", () => {
  const frames = Array.from({ length: 2400 }, (_, k) => frame(k / 4, { 0: { rate: k % 10 } }));
  const { x, rate } = drawn(frames, 600);
  assert.ok(x.length <= 242, String(x.length));
  assert.ok(rate[0].slice(1, -1).every((v) => near(v, 4.5)));
});

test("what was drawn is drawn the same at the next tick", () => {
  const frames = Array.from({ length: 2000 }, (_, k) => frame(k / 4, { 0: { rate: Math.sin(k) } }));
  const before = drawn(frames.slice(0, 1990), 300).rate[0], after = drawn(frames, 300).rate[0];
  const known = new Set(after.map(String));
  assert.ok(before.slice(5, -1).every((value) => known.has(String(value))));
});

test("a lag that jumps by whole batches is averaged over a second", () => {
  const { lag } = drawn(Array.from({ length: 40 }, (_, k) => frame(k / 4, { 0: { lag: k % 2 ? 8 : 6 } })));
  assert.ok(lag[0].slice(4).every((v) => near(v, 7)));
});

test("cores busy stack up, the loader at the bottom; ticks without a host reading are left out", () => {
  const frames = [frame(0, {}, { cores: 4, cpu: 2, loader: 0.5, trials: { 0: 1, 1: 0.25 } }), frame(0.25, {}), frame(2, {}, { cores: 4, cpu: 1, loader: 0.5 })];
  const { x, own, stack } = cpuSeries(reel(frames), 2, 60);
  assert.deepEqual(x, [-2, 0]);
  assert.deepEqual(stack.map((list) => list[0]), [0.5, 1.5, 1.75]);
  assert.deepEqual(own.map((list) => list[1]), [0.5, null, null]);
});

test("a trial's whole life is the mean over the time that it was there", () => {
  const frames = [];
  for (let k = 0; k < 40; k++) frames.push(frame(k / 4, { 0: { computing: k < 20 ? 1 : 0, held: k < 20 ? 0 : 1, rate: 100 } }));
  const all = whole(reel(frames), 0);
  assert.ok(near(all.computing, 0.5) && near(all.held, 0.5) && near(all.samplesPerS, 100));
  assert.equal(whole(reel(frames), 1), undefined);
  for (let k = 40; k < 80; k++) frames.push(frame(k / 4, { 0: { paused: 1 } }));
  const paused = whole(reel(frames), 0);
  assert.ok(near(paused.computing, 0.5) && near(paused.samplesPerS, 100) && near(paused.paused, 0.5), "a pause makes nobody slow");
});

test("a stream of hours keeps ten minutes in full and some of all before, in bounded space", () => {
  const long = new Reel();
  const one = decode(bytes(frame(0, { 0: { lag: 1 } })))[0];
  for (let k = 0; k < 60000; k++) long.add({ ...one, t: k / 4 });
  assert.ok(long.frames.length <= 3201, String(long.frames.length));
  assert.equal(long.frames[0].t, 0);
  assert.equal(long.last.t, 59999 / 4);
  assert.equal(long.since(590).length, 591 * 4 + 1);
  const { x, lag } = series(long, LANES, 15000);
  assert.ok(lag[0].every((v) => v === 1), "thinned frames are no silence");
  assert.ok(x[0] < -14900);
  const again = new Reel(long.frames.slice());
  assert.ok(Math.abs(again.stepS / long.stepS - 1) < 1);
  assert.ok(series(again, LANES, 15000).lag[0].every((v) => v === 1));
});

test("charts end where the last trial was in the stream, not where one said later how it ended", () => {
  const train = (t) => frame(t, { 0: { lag: 2, rate: 50 } }), word = frame(90, { 0: { state: 5, fill: NaN, lag: NaN, rate: NaN, computing: NaN, held: NaN } });
  const ended = reel([train(1), train(2), frame(3, {}), word, frame(91, {})]).withoutIdleEnd();
  assert.equal(ended.last.t, 2);
  assert.deepEqual(series(ended, LANES, 60).rate[0], [50, 50]);
});

test("a trial's time line spans its life, with a gap where it was away", () => {
  const here = (t) => frame(t, { 0: { computing: 0.5, held: 0.25 }, 1: {} }), away = (t) => frame(t, { 1: {} });
  const times = Array.from({ length: 40 }, (_, k) => k / 4 + 5);
  const found = timeline(reel([away(0), ...times.map((t, k) => (k >= 10 && k < 20 ? away(t) : here(t))), away(30)]), 0, 4);
  assert.deepEqual([found.from, found.to], [5, 14.75]);
  assert.deepEqual(found.bars.map((bar) => bar.here), [true, false, true, true]);
  assert.deepEqual(found.bars[0], { here: true, computing: 0.5, waiting: 0, held: 0.25, joining: 0, paused: 0, timedOut: 0 });
  assert.ok(near(found.share.computing, 0.5));
  assert.deepEqual(timeline(reel([away(0)]), 0, 4).bars, []);
});
