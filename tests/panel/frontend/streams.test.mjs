import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES, bytes, frame, lane } from "./sources.mjs";

const { Streams } = await import(`${SOURCES}/streams.js`);
const STATES = ["joining", "streaming", "timed out", "waiting", "held back"];

/** One view of several lists of numbers, and how long each is. */
function laid(...lists) {
  return [bytes(lists.flat(2)), lists.map((list) => 4 * list.flat().length)];
}

/** Two streams: a trial on both, under different numbers, and one on each. */
function two(trainRows, valRows, { curves = [[], []], origins = [100, 110] } = {}) {
  const streams = new Streams(() => 0);
  const [history, frames] = laid(trainRows.map((rows, k) => frame(k, rows)), valRows.map((rows, k) => frame(k, rows)));
  const [points, lengths] = laid(...curves);
  const scene = (name, lanes, origin_s) => ({ n: 1, origin_s, states: STATES, state: "serving", stream: { name, window: 8, epoch_batches: 10, slots: 4 }, lanes });
  streams.load(
    { streams: [scene("train", [lane("a", ["loss"]), lane("both", ["loss"])], origins[0]), scene("val", [lane("both", ["loss"]), lane("b")], origins[1])], lengths: frames.map((length, k) => [length, lengths[k]]) },
    history,
    points,
  );
  return streams;
}

test("a trial on two streams is one row, and keeps its number whichever stream tells of it", () => {
  const streams = two([{ 0: { lag: 1 }, 1: { lag: 2 } }], [{ 0: { lag: 3 }, 1: { lag: 4 } }]);
  assert.deepEqual(streams.whole.lanes.map(({ name }) => name), ["a", "both", "b"]);
  const [train, val] = streams.stores;
  assert.deepEqual(train.lanes.map((one) => one && one.name), ["a", "both"]);
  assert.deepEqual(val.lanes.map((one) => one && one.name), [null, "both", "b"]);
  assert.equal(val.last.rows[1].lag, 3);
  assert.equal(val.last.rows[2].lag, 4);
});

test("where it is says the stream on which it spends its time; its shares and its pace are sums", () => {
  const streams = two([{ 1: { rate: 60, computing: 0.1, held: 0.1, lag: 5 } }], [{ 0: { rate: 40, computing: 0.5, held: 0.1, lag: 2 } }]);
  const { whole } = streams, row = whole.lastRow(1);
  assert.equal(whole.placeOf(1).stream, "val");
  assert.equal(whole.placeOf(1).row.lag, 2);
  assert.equal(row.samplesPerS, 100);
  assert.ok(Math.abs(row.computing - 0.6) < 1e-6 && Math.abs(row.held - 0.2) < 1e-6);
  streams.tick({ op: "tick", n: 2 }, bytes(frame(1, { 1: { rate: 80, computing: 0.9, lag: 7 } })));
  assert.equal(whole.placeOf(1).stream, "train");
  assert.ok(whole.lastRow(1).computing <= 1, "more than all of its time it cannot spend");
});

test("a tick says which stream it is of; one that was missed is noticed for that stream alone", () => {
  const streams = two([{}], [{}]);
  assert.deepEqual(streams.n, [1, 1]);
  assert.equal(streams.tick({ op: "tick", at: 1, n: 2, lanes: { 2: lane("late") } }, bytes(frame(1, { 2: { lag: 6 } }))), true);
  assert.equal(streams.tick({ op: "tick", n: 5 }, bytes(frame(1, {}))), false);
  assert.equal(streams.tick({ op: "tick", at: 2, n: 1 }, null), false, "a stream that the page does not know yet");
  assert.equal(streams.whole.lanes[3].name, "late");
  assert.equal(streams.whole.lastRow(3).lag, 6);
});

test("a curve is that of the stream that has most of it, on one time", () => {
  const point = (t, batches, epochs, value) => [t, batches, epochs, ...Array(4).fill(value), 1];
  const train = [1, 0, 1, 3, ...[0, 1, 2].flatMap((k) => point(k, k, k / 10, 1 - k / 10))], val = [0, 0, 1, 1, ...point(5, 9, 0.9, 0.5)];
  const { whole } = two([{ 1: {} }], [{ 0: {} }], { curves: [train, val], origins: [110, 100] });
  assert.deepEqual(whole.curve(1, "loss").map(([t]) => t), [10, 11, 12]);
  assert.ok(Math.abs(whole.value(1, "loss") - 0.8) < 1e-6);
});

test("what is left of a trial is the longest on any of its streams, and of all trials that of the slowest", () => {
  const streams = two([{ 1: {} }], [{ 0: {} }]);
  const paced = (lane, leftS, all) => {
    const raw = frame(1, { [lane]: {} });
    raw.push(-3, 1, all, all, all, lane, 5, 100, leftS, 3);
    raw[1] = raw.length;
    return bytes(raw);
  };
  assert.ok(Number.isNaN(streams.whole.paceOf(1).eta.leftS) && Number.isNaN(streams.whole.all.leftS));
  streams.tick({ op: "tick", n: 2 }, paced(1, 60, 70));
  streams.tick({ op: "tick", at: 1, n: 2 }, paced(0, 90, 95));
  assert.equal(streams.whole.paceOf(1).eta.leftS, 90);
  assert.equal(streams.whole.all.leftS, 95);
});

test("an end on one stream is none while the trial is on another", () => {
  const streams = two([{ 1: {} }], [{ 0: {} }]);
  const ended = { ...lane("both", ["loss"]), here: false, end: "done", error: "", last: { loss: 0.125 } };
  streams.tick({ op: "tick", n: 2, lanes: { 1: ended } }, bytes(frame(1, {})));
  assert.equal(streams.whole.lanes[1].here, true);
  streams.tick({ op: "tick", at: 1, n: 2, lanes: { 0: ended } }, bytes(frame(1, {})));
  assert.deepEqual(streams.whole.stateOf(1), { state: "done", forS: 0 });
  assert.equal(streams.whole.value(1, "loss"), 0.125);
});

test("what is saved opens again with every stream", () => {
  const streams = two([{ 0: { lag: 1 }, 1: { lag: 2 } }], [{ 0: { lag: 3 } }], { curves: [[1, 0, 1, 1, 0, 0, 0, 0.5, 0.5, 0.5, 0.5, 1], []] });
  streams.know({ trials: { a: [["lr", "0.1"]] }, verdicts: { b: "rank 3 of 4" }, plan: { title: "plan", trials: [] } });
  const { scene, history, curves } = streams.snapshot(), again = new Streams(() => 0);
  again.load(JSON.parse(JSON.stringify(scene)), history, curves);
  assert.equal(again.whole.recorded, true);
  assert.deepEqual(again.whole.lanes.map(({ name }) => name), ["a", "both", "b"]);
  assert.deepEqual(again.whole.params.get("a"), [["lr", "0.1"]], "parameters are columns without a kernel too");
  assert.equal(again.whole.verdicts.b, "rank 3 of 4");
  assert.equal(again.whole.plan.title, "plan");
  assert.equal(again.stores[1].last.rows[1].lag, 3);
  assert.equal(again.whole.value(1, "loss"), 0.5);
});

test("a life over two streams is one line of time", () => {
  const rows = (from, to, what) => Array.from({ length: 40 }, (_, k) => (k >= from && k < to ? { [what]: { computing: 0.5 } } : {}));
  const { whole } = two(rows(0, 20, 1), rows(20, 40, 0), { origins: [100, 100] });
  const life = whole.timesOf(1, 4);
  assert.deepEqual([life.from, life.to], [0, 39]);
  assert.ok(life.bars.every(({ here, computing }) => here && Math.abs(computing - 0.5) < 0.1), JSON.stringify(life));
});
