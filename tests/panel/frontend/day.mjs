// Keeps pages over the messages of a stream, as they were told (tests/panel/a_day.py), and prints what each has at the end.

import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";
import { SOURCES } from "./sources.mjs";

const { Streams } = await import(`${SOURCES}/streams.js`);
const { curvesOf } = await import(`${SOURCES}/learning.js`);

const view = (text) => {
  const bytes = Buffer.from(text, "base64");
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
};

const pages = [];
for await (const line of createInterface({ input: createReadStream(process.argv[2]) })) {
  const { scene, history, curves, content, frame } = JSON.parse(line);
  if (scene) {
    const page = new Streams(() => 0);
    page.load(scene, view(history), view(curves));
    pages.push(page);
  } else for (const page of pages) if (!page.tick(content, view(frame))) throw new Error(`a tick before ${content.n} was missed`);
}

/** As JSON has it: words for what is no number. */
const plain = (value) => (typeof value === "number" && !Number.isFinite(value) ? String(value) : value);

function has(page) {
  const store = page.whole, { curves } = page.snapshot();
  const drawn = [];
  for (const axis of ["batch", "epoch", "time"]) for (const smooth of [0, 0.6, 0.9]) for (const metric of ["loss", "val_acc"]) {
    for (const { name, x, y, low, high } of curvesOf(store, metric, { axis, smooth })) drawn.push({ axis, smooth, metric, name, x, y, low, high });
  }
  const lanes = store.lanes.map((lane, k) => ({ name: lane.name, ...store.stateOf(k), told: store.told(k), row: store.lastRow(k), pace: store.paceOf(k), values: lane.metrics.map((name) => store.value(k, name)), life: store.timesOf(k, 1).share }));
  return { bytes: Buffer.from(curves.buffer).toString("base64"), drawn, lanes, all: store.all, say: store.say, perS: store.toldPerS, marks: store.marks };
}

process.stdout.write(JSON.stringify(pages.map(has), (_, value) => plain(value)));
