import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES } from "./sources.mjs";

const { arranged, groups, paramOf, sorted, telling } = await import(`${SOURCES}/order.js`);
const { columnsOf } = await import(`${SOURCES}/table.js`);
const { parameter } = await import(`${SOURCES}/words.js`);
const { isOf } = await import(`${SOURCES}/beside.js`);
const { parts, placeWords } = await import(`${SOURCES}/place.js`);

const lane = (name, end, since_s = 0) => ({ name, here: !end, end: end || "", since_s });
const many = [...Array.from({ length: 8 }, (_, k) => lane(`run-${k}`)), ...Array.from({ length: 30 }, (_, k) => lane(`out-${k}`, "pruned", k)), lane("bad", "failed"), lane("fine", "done", 99)];
const names = (lanes, found) => found.map((number) => lanes[number].name);

test("with a few trials all have a row, in the order in which they came", () => {
  const lanes = [lane("a"), lane("b", "done"), undefined, lane("c", "left")];
  assert.deepEqual(arranged(lanes, { sort: null }).rows, [0, 1, 3]);
  assert.deepEqual(arranged(lanes, { sort: null }).folds, []);
});

test("with many, those that ended fold by kind but for the latest; failures never do", () => {
  const { rows, folds } = arranged(many, { sort: null });
  assert.deepEqual(names(many, rows), [...Array.from({ length: 8 }, (_, k) => `run-${k}`), "out-27", "out-28", "out-29", "bad", "fine"]);
  assert.deepEqual(folds.map(({ word, lanes, open }) => [word, lanes.length, open]), [["pruned", 27, false]]);
  const opened = arranged(many, { sort: null, open: ["pruned"] });
  assert.equal(opened.rows.length, many.length);
  assert.deepEqual(opened.folds.map(({ lanes, open }) => [lanes.length, open]), [[27, true]]);
});

test("the best never folds, nor one that is read, and of sorted rows those that come last do", () => {
  const kept = new Set([8, 9, -1]), found = arranged(many, { sort: null, kept });
  assert.deepEqual(names(many, found.rows.slice(8)), ["out-0", "out-1", "out-27", "out-28", "out-29", "bad", "fine"]);
  const value = (lane) => (lane % 2 ? lane : -lane), sort = { by: "x", down: true };
  const rows = arranged(many, { sort, kept: new Set() }, value).rows.filter((lane) => many[lane].end === "pruned");
  assert.deepEqual(rows, [37, 35, 33], "the best of those that were pruned have rows");
});

test("of those that ended the best by their score have rows, the others fold", () => {
  const merit = (lane) => (lane < 12 ? 100 - lane : NaN), { rows } = arranged(many, { sort: null, merit });
  assert.deepEqual(names(many, rows.filter((lane) => many[lane].end === "pruned")), ["out-0", "out-1", "out-2", "out-3"]);
});

test("those of each sweep fold apart, by their own key; one alone has a row", () => {
  const sweeps = Object.fromEntries(many.slice(8, 20).map(({ name }) => [name, "s"]));
  const { folds } = arranged(many, { sort: null, sweeps, open: ["pruned s"] });
  assert.deepEqual(folds.map(({ key, sweep, word, lanes, open }) => [key, sweep, word, lanes.length, open]), [["pruned", "", "pruned", 15, false], ["pruned s", "s", "pruned", 12, true]]);
  const lanes = [...Array.from({ length: 9 }, (_, k) => lane(`run-${k}`)), ...Array.from({ length: 5 }, (_, k) => lane(`out-${k}`, "pruned", k))];
  assert.deepEqual(arranged(lanes, { sort: null }).folds, []);
});

test("of those that are queued the next ones have rows; where there are many, the others fold", () => {
  const waiting = (name) => ({ ...lane(name, "", 1), here: false, pending: "queued: it starts when another trial of its sweep ends" });
  const queued = [lane("run-0"), lane("run-1"), ...Array.from({ length: 20 }, (_, k) => waiting(`next-${k}`))];
  const { rows, folds } = arranged(queued, { sort: null });
  assert.deepEqual(names(queued, rows), ["run-0", "run-1", "next-0", "next-1", "next-2", "next-3"]);
  assert.deepEqual(folds.map(({ word, lanes, open }) => [word, lanes.length, open]), [["queued", 16, false]]);
  assert.equal(arranged(queued, { sort: null, open: ["queued"] }).rows.length, 22);
  assert.equal(arranged(queued.slice(0, 8), { sort: null }).rows.length, 8);
  const starting = { ...waiting("now"), pending: "starting" };
  assert.ok(arranged([...queued, starting], { sort: null }).rows.includes(queued.length), "it is about to run");
});

test("a filter finds names by any of their words", () => {
  const found = arranged(many, { sort: null, filter: "OUT 2", open: ["pruned"] });
  assert.deepEqual(names(many, found.rows), ["out-2", "out-12", ...Array.from({ length: 10 }, (_, k) => `out-2${k}`)]);
  assert.deepEqual(names(many, arranged(many, { sort: null, filter: "bad" }).rows), ["bad"]);
});

const params = new Map([["run-0", [["lr", "0.1"], ["opt", "'adam'"], ["seed", "1"]]], ["run-1", [["lr", "1e-05"], ["opt", "'sgd'"], ["seed", "1"]]], ["run-2", [["lr", "0.01"], ["seed", "1"], ["extra", "True"]]]]);

test("a filter compares parameters; what is no parameter is looked for in names", () => {
  const found = (filter) => names(many, arranged(many, { sort: null, filter, params }).rows);
  assert.deepEqual(found("lr > 0.001"), ["run-0", "run-2"]);
  assert.deepEqual(found("lr<=0.01 opt=SGD"), ["run-1"]);
  assert.deepEqual(found("lr=.1"), ["run-0"]);
  assert.deepEqual(found("depth>3"), []);
});

test("parameters that differ are columns, those of most trials first; numbers and words sort", () => {
  assert.deepEqual(telling(many, params), ["lr", "opt", "extra"]);
  assert.deepEqual(["lr", "opt", "none"].map((name) => paramOf(params, "run-1", name)), [0.00001, "sgd", undefined]);
  const value = (lane) => paramOf(params, many[lane].name, "lr");
  assert.deepEqual(sorted([3, 0, 1, 2], { by: "param lr", down: false }, value), [1, 2, 0, 3]);
  const mixed = { 0: 2, 1: "auto", 2: 10 };
  assert.deepEqual(sorted([0, 1, 2], { by: "x", down: false }, (k) => mixed[k]), [0, 2, 1]);
  assert.deepEqual([0.00001, 0.1, 128, 1234567, 0.000123456, "a-long-word", undefined].map((v) => parameter(v)), ["1e-5", "0.1", "128", "1.23e+6", "1.23e-4", "a-long-…", "–"]);
  assert.deepEqual([0.0003, 0.1].map((v) => parameter(v)), ["0.0003", "0.1"]);
  assert.deepEqual([0.00001, 0.1].map((v) => parameter(v, true)), ["1e-5", "1e-1"], "one format in a column");
});

test("rows of a sweep stand together, others below; one kind alone is no group", () => {
  const sweeps = { "run-1": "first", "run-3": "second", "run-4": "first", "out-0": "first" };
  const found = groups(many, arranged(many, { sort: null }).rows, sweeps);
  assert.deepEqual(found.map(({ name, rows, lanes }) => [name, rows.length, lanes.length]), [["first", 2, 3], ["second", 1, 1], ["", 10, 36]]);
  assert.deepEqual(groups(many.slice(0, 2), [0, 1], {}), []);
});

test("rows are sorted by number or name; what is unknown comes last either way", () => {
  const value = { 0: 2, 1: NaN, 2: 1, 3: 2 };
  assert.deepEqual(sorted([0, 1, 2, 3], { by: "x", down: false }, (k) => value[k]), [2, 0, 3, 1]);
  assert.deepEqual(sorted([0, 1, 2, 3], { by: "x", down: true }, (k) => value[k]), [0, 3, 2, 1]);
  const name = ["cnn-10", "cnn-9", "mlp"];
  assert.deepEqual(sorted([0, 1, 2], { by: "name", down: false }, (k) => name[k]), [1, 0, 2]);
});

test("a place shows taken, ready and not prepared on one scale for all", () => {
  assert.deepEqual(parts({ fill: 8, lag: 8 }, 8, 8), { at: 0, ready: 8, later: 0 }); // the slowest
  assert.deepEqual(parts({ fill: 0, lag: 0 }, 8, 8), { at: 8, ready: 0, later: 0 }); // held at the wall
  assert.deepEqual(parts({ fill: 3, lag: 3 }, 8, 8), { at: 5, ready: 3, later: 0 });
  assert.deepEqual(parts({ fill: 0, lag: 0 }, 2, 8), { at: 2, ready: 0, later: 6 }); // the loader is the limit
  assert.deepEqual(parts({ fill: 900, lag: 9 }, 900, 256), { at: 0, ready: 256, later: 0 }); // it catches up
  assert.deepEqual(parts(null, 3, 8), { at: 0, ready: 0, later: 8 });
  assert.equal(placeWords({ fill: 8, lag: 8 }), "8 behind · 8 ready");
  assert.equal(placeWords({ fill: 0, lag: 0 }), "at the front · 0 ready");
  assert.equal(placeWords({ fill: 141, lag: 141 }), "141 behind", "both numbers would not fit");
  assert.equal(placeWords({ fill: 3, lag: 141 }), "141 behind · 3 ready");
});

test("columns of numbers are the chosen ones, else those of the charts, then the first ones", () => {
  const all = ["loss", "accuracy", "f1", "auc"];
  assert.deepEqual(columnsOf(all), ["loss", "accuracy"]);
  assert.deepEqual(columnsOf(all, null, ["f1"]), ["f1", "loss"]);
  assert.deepEqual(columnsOf(all, null, ["f1", "auc", "loss"]), ["f1", "auc"]);
  assert.deepEqual(columnsOf(all, ["auc"], ["f1"]), ["auc"]);
  assert.deepEqual(columnsOf(all, ["gone", "auc"], ["f1"]), ["auc"]);
});

test("a trial without a stream has no second row, and a run after the one on the stream has its own", () => {
  const trial = { name: "a", started_s: 1050 };
  assert.equal(isOf({ ...lane("a"), since_s: 10 }, trial, 1000), true, "it has attached meanwhile");
  assert.equal(isOf({ ...lane("a", "done"), since_s: 60 }, trial, 1000), true, "and has left");
  assert.equal(isOf({ ...lane("a", "done"), since_s: 40 }, trial, 1000), false, "that was the run before");
  assert.equal(isOf({ ...lane("a"), here: false, pending: "starting", since_s: 0 }, trial, 1000), true);
});
