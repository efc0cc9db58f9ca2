import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES, bytes, filled as fill, frame, lane } from "./sources.mjs";

const { Store } = await import(`${SOURCES}/store.js`);
const filled = (...given) => fill(Store, ...given);

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
  assert.equal(store.last.rows[1].lag, 4);
});

test("what is saved opens as a recording, with all that was known", () => {
  const store = filled([]);
  store.tick({ op: "tick", n: 1, origin_s: 1000, marks: [[0.5, "joined", "a", "a joined"]], gpus: ["A100"] }, bytes(frame(0, {})));
  for (let k = 1; k < 50; k++) store.tick({ op: "tick", n: k + 1 }, bytes(frame(k, { 0: { lag: 2 } })));
  const { scene, history } = store.snapshot();
  const again = new Store(() => 0);
  again.load(JSON.parse(JSON.stringify(scene)), history);
  assert.equal(again.recorded, true);
  assert.equal(store.recorded, false);
  assert.equal(again.frames.length, 50);
  assert.equal(again.lanes[0].name, "a");
  assert.equal(again.endS, 1049);
  assert.deepEqual(again.marks, [{ t: 0.5, kind: "joined", name: "a", text: "a joined" }]);
  assert.deepEqual(again.can, {});
  assert.equal(again.gpus[0], "A100");
});

test("the machine is as it was last seen, which not every tick tells", () => {
  const store = filled([frame(0, {}, { cores: 2, cpu: 1.5 })]);
  store.tick({ op: "tick", n: 2 }, bytes(frame(1, {})));
  assert.equal(store.machine.cpu, 1.5);
  store.tick({ op: "tick", n: 3 }, bytes(frame(2, {}, { cores: 2, cpu: 0.5 })));
  assert.equal(store.machine.cpu, 0.5);
});

test("only so many marks are kept, the last ones", () => {
  const store = filled([]);
  for (let k = 0; k < 250; k++) store.tick({ op: "tick", n: k + 1, marks: [[k, "left", "a", "a left"]] }, null);
  assert.equal(store.marks.length, 200);
  assert.equal(store.marks[199].t, 249);
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
