import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES, bytes } from "./sources.mjs";

const { Store } = await import(`${SOURCES}/store.js`);

const lane = (name, metrics = []) => ({ name, here: true, since_s: 0, metrics });

/** One frame; rows: {lane: {lag, rate, computing, metrics}}. */
function frame(t, rows) {
  const body = Object.entries(rows).flatMap(([number, { state = 1, lag = 0, rate = 0, computing = 0, metrics = [] }]) => [
    Number(number), state, 0, lag, rate, computing, 0, 0, 0, 0, metrics.length, ...metrics,
  ]);
  return [t, 10 + body.length, 1, 0, 0, 0, 0, 0, 0, 0, ...body];
}

function filled(frames, lanes = [lane("a"), lane("b")]) {
  const store = new Store(() => 0);
  store.load({ n: frames.length, states: ["joining", "streaming", "parked"], lanes }, bytes(frames.flat()));
  return store;
}

test("a tick that follows is taken in; one that was missed is noticed", () => {
  const store = filled([frame(0, {})]);
  assert.equal(store.tick({ op: "tick", n: 2, state: "idle" }, bytes(frame(1, {}))), true);
  assert.equal(store.state, "idle");
  assert.equal(store.frames.length, 2);
  assert.equal(store.tick({ op: "tick", n: 5 }, bytes(frame(2, {}))), false);
});

test("a lane that joins gets its place, whatever came before", () => {
  const store = filled([frame(0, {})], []);
  store.tick({ op: "tick", n: 2, lanes: { 1: lane("late") } }, bytes(frame(1, { 1: { lag: 4 } })));
  assert.equal(store.lanes[1].name, "late");
  assert.deepEqual(store.series(60).lag[1], [null, 4]);
});

test("shares of compute stack up to one, lane 0 at the bottom", () => {
  const { share, own } = filled([frame(0, { 0: { computing: 0.2 }, 1: { computing: 0.6 } })]).series(60);
  assert.ok(Math.abs(own[0][0] - 0.25) < 1e-6);
  assert.ok(Math.abs(share[0][0] - 0.25) < 1e-6);
  assert.ok(Math.abs(share[1][0] - 1) < 1e-6);
});

test("where nobody computes there is no share, not a division by zero", () => {
  const { share } = filled([frame(0, { 0: {}, 1: {} })]).series(60);
  assert.deepEqual(share, [[null], [null]]);
});

test("a silence is a gap, not a line across it", () => {
  const { x, lag } = filled([frame(0, { 0: { lag: 1 } }), frame(50, { 0: { lag: 1 } })]).series(60);
  assert.equal(x.length, 3);
  assert.deepEqual(lag[0], [1, null, 1]);
});

test("only the span that is asked for is drawn, and time counts back from the last frame", () => {
  const frames = Array.from({ length: 200 }, (_, k) => frame(k, { 0: {} }));
  const { x } = filled(frames).series(30);
  assert.equal(x[x.length - 1], 0);
  assert.ok(x[0] >= -31 && x.length <= 32);
});

test("history is bounded, and survives the way into the model and back", () => {
  const store = filled([]);
  for (let k = 0; k < 2500; k++) store.tick({ op: "tick", n: k + 1 }, bytes(frame(k, { 0: { lag: 2 } })));
  assert.equal(store.frames.length, 2400);
  const { scene, history } = store.snapshot();
  const again = new Store(() => 0);
  again.load(scene, history);
  assert.equal(again.frames.length, 2400);
  assert.equal(again.lanes[0].name, "a");
  assert.equal(again.last.t, 2499);
});

test("a metric's curve holds each value once, thinned to what fits, the last one kept", () => {
  const frames = Array.from({ length: 400 }, (_, k) => frame(k, { 0: { metrics: [Math.floor(k / 2)] } }));
  const curve = filled(frames, [lane("a", ["loss"])]).metricHistory(0, 0, 60);
  assert.equal(curve.length, 60);
  assert.equal(curve[59], 199);
});

test("how long a trial has been in its state is read off the frames", () => {
  const frames = [1, 2, 2, 2].map((state, k) => frame(k * 10, { 0: { state } }));
  assert.deepEqual(filled(frames).stateOf(0), { state: "parked", forS: 20 });
  assert.equal(filled(frames).stateOf(1).state, "joining");
  assert.equal(filled(frames, [{ ...lane("a"), here: false }]).stateOf(0).state, "gone");
});

test("a state that changes with every batch is the one of most ticks; others show at once", () => {
  const states = ["joining", "streaming", "waiting", "held back", "parked"];
  const store = (numbers) => {
    const one = filled(numbers.map((state, k) => frame(k, { 0: { state } })));
    one.states = states;
    return one;
  };
  assert.equal(store([3, 3, 3, 3, 2, 3, 3, 2]).stateOf(0).state, "held back");
  assert.equal(store([3, 3, 3, 3, 3, 3, 3, 4]).stateOf(0).state, "parked");
  assert.equal(store([2]).stateOf(0).state, "waiting");
});

test("a trial that left keeps its last numbers", () => {
  const store = filled([frame(0, { 0: { metrics: [0.5] } }), frame(1, {})], [lane("a", ["loss"])]);
  assert.equal(store.last.rows[0], undefined);
  assert.equal(store.lastRow(0).metrics[0], 0.5);
});
