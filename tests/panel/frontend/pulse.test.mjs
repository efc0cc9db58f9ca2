import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES } from "./sources.mjs";

const { Pulse } = await import(`${SOURCES}/pulse.js`);

function timed(ask) {
  const time = { now: 0 }, asked = [];
  const pulse = new Pulse(() => (asked.push(time.now), ask && ask()), { clock: () => time.now, wall: () => 1e12 + time.now });
  const wait = (seconds) => {
    for (let k = 0; k < seconds; k++) (time.now += 1000), pulse.beat();
  };
  return { pulse, asked, wait };
}

test("nothing is asked while ticks come; a quiet stream's kernel is asked now and then, and is there as long as it answers", () => {
  const { pulse, asked, wait } = timed();
  for (let k = 0; k < 60; k++) (wait(1), pulse.heard());
  assert.deepEqual(asked, []);
  wait(6);
  assert.deepEqual(asked, [65000]);
  pulse.heard();
  wait(4);
  assert.equal(pulse.lost, "");
});

test("a kernel that does not answer is silent after some seconds, and no more once it has answered", () => {
  const { pulse, asked, wait } = timed();
  wait(12);
  assert.equal(pulse.lost, "");
  wait(3);
  assert.equal(pulse.lost, "silent");
  wait(30);
  assert.deepEqual(asked, [5000, 20000, 35000]);
  assert.equal(pulse.heardAtMs, 1e12, "what is shown is of then");
  pulse.heard();
  assert.equal(pulse.lost, "");
});

test("whoever asks for something hears soon that nobody answers", () => {
  const { pulse, wait } = timed();
  wait(1);
  pulse.question();
  wait(9);
  assert.equal(pulse.lost, "silent");
});

test("a kernel to which nothing can be sent is gone, and is not asked again", () => {
  const { pulse, asked, wait } = timed(() => {
    throw new Error("Cannot send");
  });
  wait(6);
  assert.equal(pulse.lost, "gone");
  wait(60);
  assert.deepEqual(asked, [5000]);
});
