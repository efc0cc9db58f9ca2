import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES, bytes, frame, lane } from "./sources.mjs";

const { Streams } = await import(`${SOURCES}/streams.js`);
const { Notices } = await import(`${SOURCES}/notices.js`);

class Heard extends Notices {
  said = [];

  say(lines) {
    this.said.push(lines);
  }
}

const ended = (name, end, error = "") => ({ ...lane(name), here: false, end, error, last: {} });

function watching(lanes) {
  const streams = new Streams(() => 0), notices = new Heard({}, undefined);
  streams.load({ n: 1, states: ["joining"], state: "serving", stream: { name: "digits" }, lanes }, bytes(frame(0, {})));
  notices.begin(streams);
  notices.on = true;
  const tick = (n, content) => (streams.tick({ op: "tick", n, ...content }, null), notices.news(streams));
  return { notices, tick };
}

test("each end is said once, with its error; what had ended before the page opened is not", () => {
  const { notices, tick } = watching([lane("cnn"), lane("mlp"), ended("old", "done")]);
  tick(2, {});
  tick(3, { lanes: { 0: ended("cnn", "done"), 1: ended("mlp", "failed", "ValueError: broken") } });
  tick(4, {});
  assert.deepEqual(notices.said, [["cnn done", "mlp failed: ValueError: broken"]]);
});

test("a trial that runs again ends again; one that only left is no end", () => {
  const { notices, tick } = watching([lane("cnn"), lane("mlp")]);
  tick(2, { lanes: { 0: ended("cnn", "left"), 1: ended("mlp", "") } });
  assert.deepEqual(notices.said, [], "it tells how it ended in a moment");
  tick(2, { lanes: { 0: ended("cnn", "stopped"), 1: ended("mlp", "left") } });
  tick(3, { lanes: { 0: lane("cnn") } });
  tick(4, { lanes: { 0: ended("cnn", "stopped") } });
  assert.deepEqual(notices.said, [["cnn stopped"], ["cnn stopped"]]);
});

test("a loader that fails is said once; while it is switched off nothing is said, and nothing later", () => {
  const { notices, tick } = watching([lane("cnn")]);
  notices.turn(false);
  tick(2, { lanes: { 0: ended("cnn", "done") } });
  notices.turn(true);
  tick(3, {});
  tick(4, { state: "failed", stream: { name: "digits", failure: "OSError: no disk" } });
  tick(5, {});
  assert.deepEqual(notices.said, [["The loader of digits has failed: OSError: no disk"]]);
});
