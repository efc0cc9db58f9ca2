import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES } from "./sources.mjs";

const { Log, matching } = await import(`${SOURCES}/log.js`);
const { coloured } = await import(`${SOURCES}/ansi.js`);

const part = (start, text, open = "", run = "1") => ({ op: "log", name: "cnn", run, start, text, open });
const text = (log) => log.pieces.join("") + log.open;

function watching() {
  const log = new Log();
  log.load({ can: true, shown: false, name: "", trials: [["cnn", "running"]] });
  log.choose("cnn");
  return log;
}

test("parts are laid end to end; what comes twice is shown once", () => {
  const log = watching();
  log.take(part(0, "one\n", "bar 1"));
  log.take(part(4, "two\n", "bar 2"));
  log.take(part(0, "one\ntwo\nthree\n", "bar 3"));
  assert.equal(text(log), "one\ntwo\nthree\nbar 3");
  assert.deepEqual(log.wish, { op: "log", name: "cnn", run: "1", at: 14 });
});

test("positions count characters as Python does, an emoji as one", () => {
  const log = watching();
  log.take(part(0, "done \u{1F389}\n"));
  assert.equal(log.wish.at, 7);
  log.take(part(7, "two\n"));
  log.take(part(0, "done \u{1F389}\ntwo\nthree\n"));
  assert.equal(text(log), "done \u{1F389}\ntwo\nthree\n");
});

test("another trial's part changes nothing, another run's starts anew", () => {
  const log = watching();
  log.take(part(0, "one\n"));
  log.take({ ...part(0, "other\n"), name: "mlp" });
  assert.equal(text(log), "one\n");
  log.take(part(0, "again\n", "", "2"));
  assert.equal(text(log), "again\n");
});

test("a gap is no line that was made up: the text starts after it, and says so", () => {
  const log = watching();
  log.take(part(0, "one\n"));
  log.take({ ...part(100, "later\n"), cut: true });
  assert.equal(text(log), "later\n");
  assert.equal(log.cut, true);
  assert.equal(log.at, 106);
});

test("a part for a page that has more is left alone, also by a page that has nothing yet", () => {
  const log = watching();
  log.take(part(100, "for another\n"));
  assert.equal(text(log), "");
  log.take(part(0, "one\n"));
  log.take(part(100, "for another\n"));
  log.take(part(100, "of a new run\n", "", "2"));
  assert.equal(text(log), "one\n");
  log.take(part(4, "two\n"));
  assert.equal(text(log), "one\ntwo\n");
});

test("only the end is kept", () => {
  const log = watching();
  for (let k = 0; k < 50; k++) log.take(part(k * 10000, "x".repeat(10000)));
  assert.ok(log.size <= 200000);
  assert.equal(log.first, 30);
  assert.equal(log.at, 500000);
});

test("without a choice the newest trial is shown, and asked for", () => {
  const log = new Log();
  log.load({ can: true, shown: false, name: "", trials: [] });
  log.choose("");
  assert.equal(log.take({ op: "log", trials: [["a", "done"], ["b", "running"]] }), false);
  assert.deepEqual(log.wish, { op: "log", name: "b", run: "", at: 0 });
  assert.equal(log.state, "running");
});

test("what a saved notebook keeps is the end, and no promise", () => {
  const log = watching();
  log.take(part(0, "x".repeat(30000) + "\nend\n", "bar"));
  const saved = log.snapshot();
  assert.equal(saved.can, false);
  assert.equal(saved.saved.length, 20000);
  const again = new Log();
  again.load(saved);
  assert.ok(text(again).endsWith("end\nbar"));
  assert.equal(again.shown, true);
});

test("a page that has chosen keeps its choice when everything is sent again", () => {
  const log = watching();
  log.take(part(0, "one\n"));
  log.load({ can: true, shown: true, name: "mlp", trials: [] });
  assert.equal(log.name, "cnn");
  assert.equal(text(log), "one\n");
});

test("colours become parts, and nothing of the sequences is left", () => {
  assert.deepEqual(coloured("plain"), [{ text: "plain" }]);
  const parts = coloured("a\x1b[31mred\x1b[0m \x1b[1;32mgreen\x1b[39;00m\x1b[38;5;28;01mx\x1b[2Ky");
  assert.equal(parts.map((p) => p.text).join(""), "ared greenxy");
  assert.ok(parts[1].colour && !parts[1].bold);
  assert.ok(parts[3].colour && parts[3].bold);
  assert.equal(parts[4].colour, "rgb(0,135,0)");
  assert.equal(parts[0].colour, undefined);
});

test("a drawer follows a log while the pane is shut, and says so", () => {
  const log = new Log();
  log.follow("cnn");
  assert.deepEqual(log.wish, { op: "log", name: "cnn", run: "", at: 0, tail: true });
  log.take(part(0, "one\n", "two"));
  assert.equal(log.text, "one\ntwo");
  assert.equal(log.shown, false);
  log.follow("");
  assert.deepEqual(log.wish, { op: "log off" });
  assert.equal(log.text, "one\ntwo");
});

test("a search finds lines with all of its words, the last ones first kept", () => {
  const lines = Array.from({ length: 30 }, (_, k) => `Epoch ${k}: loss ${k % 2 ? "0.1" : "nan"}`).join("\n");
  assert.deepEqual(matching(lines, "", 2), { lines: ["Epoch 28: loss nan", "Epoch 29: loss 0.1"], matches: 30 });
  const found = matching(lines, "NAN epoch", 3);
  assert.deepEqual([found.matches, found.lines], [15, ["Epoch 24: loss nan", "Epoch 26: loss nan", "Epoch 28: loss nan"]]);
  assert.deepEqual(matching(lines, "nothing like it", 3), { lines: [], matches: 0 });
  assert.deepEqual(matching("", "", 3), { lines: [], matches: 0 });
});
