import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES, bytes, filled as fill, frame, lane } from "./sources.mjs";

const { Store, waitsFor } = await import(`${SOURCES}/store.js`);
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
  store.put(0, lane("a", ["loss"]));
  for (let k = 1; k < 50; k++) store.tick({ op: "tick", n: k + 1 }, bytes(frame(k, { 0: { lag: 2, metrics: [0.5] } })));
  const { scene, history, curves } = store.snapshot();
  const again = new Store(() => 0);
  again.load(JSON.parse(JSON.stringify(scene)), history, curves);
  assert.equal(again.value(0, "loss"), 0.5);
  assert.equal(again.recorded, true);
  assert.equal(store.recorded, false);
  assert.equal(again.frames.length, 50);
  assert.equal(again.lanes[0].name, "a");
  assert.equal(again.endS, 1049);
  assert.deepEqual(again.marks, [{ t: 0.5, kind: "joined", name: "a", text: "a joined" }]);
  assert.deepEqual(again.can, {});
  assert.equal(again.gpus[0], "A100");
});

test("a trial that is not attached yet has its state and reason; where nobody tells of it, it is not there", () => {
  const store = filled([frame(0, {})], []), why = "queued: it needs 2.1 GiB: no more";
  store.put(0, { ...lane("big"), here: false, pending: why });
  assert.deepEqual([store.stateOf(0).state, waitsFor(store.lanes[0])], ["queued", why]);
  store.put(0, { ...lane("big"), here: false, unknown: true });
  assert.equal(store.lanes[0], null);
  store.put(0, { ...lane("big"), awaits: "its turn" });
  assert.equal(waitsFor(store.lanes[0]), "waits for its turn");
  assert.equal(waitsFor({ ...lane("big"), here: false, awaits: "", end: "done" }), "");
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

test("marks stand in the order of time, whenever they are heard of", () => {
  const store = filled([]);
  store.tick({ op: "tick", n: 1, marks: [[2, "joined", "a", "a joined"]] }, null);
  store.tick({ op: "tick", n: 2, marks: [[1.5, "workers", "", "tried 2 workers"], [3, "left", "a", "a left"]] }, null);
  assert.deepEqual(store.marks.map(({ t }) => t), [1.5, 2, 3]);
});

const learning = (count, metrics = (k) => [k]) => {
  const store = filled([], [lane("a", ["loss", "acc"])]);
  for (let k = 0; k < count; k++) store.tick({ op: "tick", n: k + 1 }, bytes(frame(k, { 0: { batches: 10 * k, metrics: metrics(k) } })));
  return store;
};

test("what is logged becomes a curve by time and batch, its newest value the row's", () => {
  const store = learning(400);
  assert.equal(store.curve(0, "loss").length, 400);
  assert.deepEqual(store.curve(0, "loss")[3], [3, 30, 0, 3, 3, 3, 3, 1]);
  assert.deepEqual(store.curve(0, "acc"), []);
  assert.equal(store.value(0, "loss"), 399);
  assert.deepEqual(store.metricHistory(0, "loss", 60).length, 60);
  assert.equal(store.metricHistory(0, "loss", 60)[59], 399);
});

test("a long curve is bounded, as fine everywhere, and keeps its ends and its peaks", () => {
  const curve = learning(9000, (k) => [k === 4321 ? 1e6 : k % 7]).curve(0, "loss");
  assert.ok(curve.length > 256 && curve.length <= 512, String(curve.length));
  assert.equal(Math.max(...curve.map((point) => point[5])), 1e6);
  assert.equal(curve[curve.length - 1][0], 8999);
  const gaps = curve.slice(1, -1).map((point, k) => point[1] - curve[k][1]);
  assert.ok(gaps.every((gap) => gap > 240 && gap < 270), "stretches of 256 batches");
});

test("another run of a trial begins its curves anew", () => {
  const store = learning(20);
  store.tick({ op: "tick", n: 21, lanes: { 0: { ...lane("a", ["loss", "acc"]), run: 1 } } }, bytes(frame(30, { 0: { metrics: [5] } })));
  assert.deepEqual(store.curve(0, "loss").map((point) => point[3]), [5]);
});

test("what an ended trial logged last is shown with all its digits", () => {
  const store = learning(3);
  store.tick({ op: "tick", n: 4, lanes: { 0: { ...lane("a", ["loss", "acc"]), here: false, end: "done", last: { acc: 0.123456789012 } } } }, null);
  assert.equal(store.value(0, "acc"), 0.123456789012);
  assert.equal(store.value(0, "loss"), 2);
});

test("a row's shares are those of the frame that the sentence tells of; a newcomer's are its last", () => {
  const store = filled([frame(0, {})]);
  const say = (at) => ({ kind: "window-bound", text: "a sets the pace.", lead: 16, pace: "a", at });
  store.tick({ op: "tick", n: 2, say: say(1) }, bytes(frame(1, { 0: { held: 0.25 }, 1: { held: 0.5 } })));
  store.tick({ op: "tick", n: 3 }, bytes(frame(1.25, { 0: { held: 0.75 }, 1: { held: 0.75 } })));
  assert.deepEqual([0, 1].map((k) => store.told(k).held), [0.25, 0.5]);
  store.lanes[1] = { ...store.lanes[1], since_s: 1.2 };
  assert.equal(store.told(1).held, 0.75);
  store.tick({ op: "tick", n: 4, say: say(null) }, bytes(frame(1.5, { 0: { held: 0.5 } })));
  assert.equal(store.told(0).held, 0.5);
});

test("no row sets the pace but the one that the sentence names", () => {
  const store = filled([frame(0, {})], ["a", "b", "c"].map((name) => ({ ...lane(name), since_s: 0 })));
  store.states = ["streaming", "sets the pace", "held back", "paused"];
  const said = (pace) => ({ kind: "window-bound", text: "a sets the pace.", lead: 16, pace, at: 1 });
  const states = () => [0, 1, 2].map((k) => store.stateOf(k).state);
  store.tick({ op: "tick", n: 2, say: said("a") }, bytes(frame(1, { 0: { state: 0 }, 1: { state: 1, held: 0.4 }, 2: { state: 1, held: 0.05 } })));
  assert.deepEqual(states(), ["sets the pace", "held back", "streaming"]);
  store.say = said(null);
  assert.deepEqual(states(), ["streaming", "sets the pace", "sets the pace"], "where it names nobody, each at times");
  store.say = { kind: "loader-bound", text: "The loader is the limit.", lead: 24, pace: null, at: 1 };
  assert.deepEqual(states(), ["streaming", "held back", "streaming"], "none, where it says that another thing is the limit");
  store.tick({ op: "tick", n: 3, say: said("a") }, bytes(frame(2, { 0: { state: 3 }, 1: { state: 2, held: 0.4 }, 2: { state: 0 } })));
  assert.equal(states()[0], "paused");
});

test("the header has the loader's batches a second of the moment that the sentence tells of", () => {
  const paced = (t, perS) => bytes(Object.assign(frame(t, {}), { 2: perS }));
  const store = filled([frame(0, {})]);
  const say = (at) => ({ kind: "loader-bound", text: "The loader is the limit at 20.0 batches/s.", lead: 42, pace: null, at });
  store.tick({ op: "tick", n: 2, say: say(1) }, paced(1, 20));
  store.tick({ op: "tick", n: 3 }, paced(1.25, 30));
  assert.equal(store.toldPerS, 20);
  store.tick({ op: "tick", n: 4, say: say(1.5) }, paced(1.5, NaN));
  store.tick({ op: "tick", n: 5 }, paced(1.75, 40));
  assert.equal(store.toldPerS, 40, "where none was known then, that of now");
  store.tick({ op: "tick", n: 6, say: say(null) }, paced(2, 50));
  assert.equal(store.toldPerS, 50);
});

test("the best is the best of what is shown, one that ended early only where there is no other, and none where nobody knows", () => {
  const lanes = ["a", "b", "c"].map((name) => ({ ...lane(name, ["loss", "lr"]), since_s: 0 }));
  const store = filled([frame(0, {})], lanes);
  store.tick({ op: "tick", n: 2, ways: { loss: -1 } }, bytes(frame(1, { 0: { metrics: [0.5, 1] }, 1: { metrics: [0.4, 2] }, 2: { metrics: [NaN, 3] } })));
  assert.deepEqual([store.best("loss"), store.best("lr")], [1, -1]);
  const shown = () => [0, 1].map((k) => store.shown(k, "loss"));
  assert.deepEqual(shown().map((value) => value.toFixed(1)), ["0.5", "0.4"]);
  store.tick({ op: "tick", n: 3 }, bytes(frame(2, { 0: { metrics: [0.3] } })));
  assert.equal(store.best("loss"), 1, "the star stands at the best of the numbers that rows show");
  assert.deepEqual(shown().map((value) => value.toFixed(1)), ["0.5", "0.4"]);
  store.renew();
  assert.equal(store.best("loss"), 0, "it moves with them");
  const ended = (k, end, loss) => (store.lanes[k] = { ...lanes[k], here: k === 0, end, last: { loss } });
  ended(1, "done", 0.4);
  store.renew();
  assert.equal(store.best("loss"), 0, "one that trains has a better number beside it");
  ended(1, "done", store.shown(0, "loss"));
  store.renew();
  assert.equal(store.best("loss"), 1, "of equal ones that which is done");
  ended(1, "stopped", 0.1);
  store.renew();
  assert.equal(store.best("loss"), 0, "one that was stopped has trained less");
});

test("a trial that was paused before the page's first frame says for how long", () => {
  const states = ["streaming", "paused"], row = { state: 1 };
  const store = filled([frame(0, { 0: row }), frame(2, { 0: row })], [{ ...lane("a"), paused_at: -183 }]);
  store.states = states;
  assert.deepEqual(store.stateOf(0), { state: "paused", forS: 185 });
});

test("a trial that stands still takes as many epochs as before, until it runs again", () => {
  const store = filled([frame(0, {})], [lane("a")]);
  const paced = (t, leftS, epochs) => {
    const raw = frame(t, { 0: {} });
    raw.push(-3, 1, NaN, NaN, NaN, 0, 5, 100, leftS, epochs);
    raw[1] = raw.length;
    return bytes(raw);
  };
  const all = () => store.paceOf(0).eta.epochs;
  store.tick({ op: "tick", n: 2 }, paced(1, 60, 5));
  assert.equal(all(), 5);
  store.tick({ op: "tick", n: 3 }, paced(2, NaN, 0));
  assert.equal(all(), 5, "paused: nothing is foretold");
  store.tick({ op: "tick", n: 4 }, paced(3, 9, 0));
  assert.equal(all(), 0, "its loop goes on without saying how many");
  store.tick({ op: "tick", n: 5 }, paced(4, 60, 5));
  store.tick({ op: "tick", n: 6, lanes: { 0: { ...lane("a"), run: 2 } } }, paced(5, NaN, 0));
  assert.equal(all(), 0, "another run of that name");
});

test("a run that begins anew leaves the curve of the one before, also to a page that opens later", () => {
  const store = new Store(() => 0), words = { name: "a", here: true, since_s: 0, metrics: ["loss"], run: 0 };
  store.load({ n: 1, states: ["joining", "streaming"], lanes: [words] }, bytes(frame(0, { 0: { batches: 1, metrics: [2] } })));
  store.tick({ n: 2 }, bytes(frame(1, { 0: { batches: 2, metrics: [1] } })));
  assert.deepEqual([store.curve(0, "loss").length, store.former(0, "loss").length], [1, 0]);
  store.tick({ n: 3, lanes: { 0: { ...words, run: 1 } } }, bytes(frame(2, { 0: { batches: 1 } })));
  assert.deepEqual([store.curve(0, "loss").length, store.former(0, "loss").map((point) => point[3])], [0, [1]]);
  store.tick({ n: 4 }, bytes(frame(3, { 0: { batches: 2, metrics: [5] } })));
  const late = new Store(() => 0), { scene, history, curves } = store.snapshot();
  late.load(scene, history, curves);
  for (const one of [store, late]) {
    assert.deepEqual([one.curve(0, "loss"), one.former(0, "loss")].map((points) => points.map((point) => point[3])), [[5], [1]]);
  }
  store.tick({ n: 5, lanes: { 0: { ...words, run: 2 } } }, bytes(frame(4, { 0: { batches: 1 } })));
  assert.deepEqual(store.former(0, "loss").map((point) => point[3]), [5], "only the last one stays");
});
