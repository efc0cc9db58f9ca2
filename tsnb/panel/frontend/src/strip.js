// How the stream flows, in a strip that is always in sight: buffer, lag, speed, share of compute, each as a number in words (those
// of `tsnb status` and `tsnb top`) and a small curve with the marks. A click opens the large charts below, another closes them.

import { attribute, button, make, put, style, svgNode } from "./dom.js";
import { series } from "./series.js";
import { paint } from "./theme.js";
import { STANDING, count, percent, roundTop } from "./words.js";

const WIDE = 200, HIGH = 26; // of a small curve, in its own units: it is stretched to the cell
const MANY = 8; // more trials than this: only the farthest, the slowest and the fastest have lines
const MANY_MS = 1000; // and they are drawn once a second
const POINTS = 80; // of a small curve

/** Title, unit, and what the small curve is of. The titles are those of the large charts. */
export const CELLS = [
  ["Buffer", "batches", "prepared, of the maximum"],
  ["Lag", "batches", "behind the fastest"],
  ["Speed", "samples/s", "of each trial"],
  ["Share of compute", "%", "by trial"],
];

/** What the cells say: {Buffer: "8 of 8 prepared", ...}; `tsnb.show.words.flow` says the same, and a test compares. */
export function flowWords({ lanes, last, states, stream, head }, call = (name) => name) {
  const rows = [];
  ((last && last.rows) || []).forEach((row, k) => {
    if (lanes[k] && lanes[k].here && states[row.state] !== "gone" && !STANDING.has(states[row.state])) rows.push([row, lanes[k].name]);
  });
  if (!rows.length) return Object.fromEntries(CELLS.map(([title]) => [title, "–"]));
  const most = (value) => rows.reduce((best, one) => (value(one[0]) > value(best[0]) ? one : best));
  const [farthest, who] = most((row) => row.lag), known = rows.filter(([row]) => Number.isFinite(row.samplesPerS)).map(([row]) => row.samplesPerS);
  const slow = Math.min(...known), fast = Math.max(...known), spent = rows.reduce((sum, [row]) => sum + (row.computing || 0), 0);
  const [largest, whose] = most((row) => row.computing || 0), near = fast - slow <= 0.05 * fast, mean = known.reduce((sum, one) => sum + one, 0) / known.length;
  return {
    Buffer: head > stream.window ? `${count(head)} prepared` : `${count(head)} of ${count(stream.window || 0)} prepared`, // more are kept for one that stops
    Lag: farthest.lag > 0 ? `${count(farthest.lag)} behind: ${call(who)}` : "all at the front",
    Speed: !known.length ? "–" : known.length === 1 ? count(fast) : count(slow) === count(fast) ? `${count(fast)} each` : near ? `about ${count(mean)} each` : `${count(slow)} to ${count(fast)}`,
    "Share of compute": spent > 0 ? `${percent((largest.computing || 0) / spent)} ${call(whose)}` : "–",
  };
}

/** `points`: [[x, y], ...] between 0 and 1, null where nothing is known. */
function path(points) {
  let out = "", pen = "M";
  for (const [x, y] of points) {
    if (y === null || !Number.isFinite(y)) {
      pen = "M";
      continue;
    }
    out += `${pen}${(x * WIDE).toFixed(1)} ${((1 - Math.min(1, y)) * (HIGH - 2) + 1).toFixed(1)}`;
    pen = "L";
  }
  return out;
}

/** At most so many of a list's places, the last one among them. */
function places(length, most = POINTS) {
  const step = Math.max(1, length / most);
  return Array.from({ length: Math.min(length, most) }, (_, k) => Math.max(0, length - 1 - Math.round((Math.min(length, most) - 1 - k) * step)));
}

class Cell {
  constructor([title, unit, of], clicked) {
    this.title = title;
    this.words = make("b", "tsnb-cell-words");
    this.curve = svgNode("svg", { class: "tsnb-cell-curve", viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    const head = make("span", "tsnb-cell-head", make("span", "", title), make("span", "tsnb-cell-unit", unit));
    this.element = button(head, "tsnb-cell", clicked);
    this.element.append(this.words, this.curve);
    this.of = `${title}, ${unit} ${of}`;
  }

  /** `shown`: the words with names as short as rows have them; `lines`: [{d, colour, area}], painted in this order. */
  draw(words, shown, lines, marks, open) {
    put(this.words, shown);
    const name = `${this.of}: ${words}`;
    attribute(this.element, "aria-label", name);
    attribute(this.element, "title", `${name}. ${open ? "Close" : "Open"} the large charts`);
    attribute(this.element, "aria-expanded", open);
    if (!lines) return;
    while (this.curve.childNodes.length > lines.length + 1) this.curve.lastChild.remove();
    while (this.curve.childNodes.length < lines.length + 1) this.curve.append(svgNode("path"));
    [...lines, { d: marks, kind: "tsnb-cell-marks" }].forEach(({ d, colour = "", kind = "tsnb-cell-line" }, k) => {
      const one = this.curve.childNodes[k];
      attribute(one, "d", d);
      attribute(one, "class", kind);
      style(one, "--tsnb-lane", colour);
    });
  }
}

export class Strip {
  /** `toggled`: opens or closes the large charts; `controls`: their id. */
  constructor(toggled, controls) {
    this.cells = CELLS.map((cell) => new Cell(cell, toggled));
    this.element = make("div", "tsnb-cells", ...this.cells.map(({ element }) => element));
    attribute(this.element, "role", "group");
    attribute(this.element, "aria-label", "State of the stream");
    this.cells.forEach(({ element }) => attribute(element, "aria-controls", controls));
  }

  /** `calls`: short names; `found`: what `series` gave for this span, where somebody has asked it already. */
  draw(store, spanS, open, calls, found) {
    const words = flowWords(store), shown = flowWords(store, (name) => calls[name] ?? name), now = performance.now(), many = store.lanes.length > MANY;
    const due = !many || now - (this.drawnMs || -Infinity) >= MANY_MS || this.drawnOf !== store.n - (store.n % 4);
    const { lines, marks } = due ? this.curves(store, spanS, found) : {};
    if (due) Object.assign(this, { drawnMs: now, drawnOf: store.n - (store.n % 4) });
    this.cells.forEach((cell, k) => cell.draw(words[cell.title], shown[cell.title], lines && lines[k], marks, open));
  }

  curves(store, spanS, found) {
    const reel = store.reel.withoutIdleEnd(), { x, lag, rate, fill, share } = found || series(reel, store.lanes, spanS);
    const at = places(x.length), across = (k) => 1 + x[k] / spanS, many = store.lanes.length > MANY;
    const peak = (lists, k) => lists.reduce((top, list) => (list[k] > top ? list[k] : top), -1), known = (v) => (v < 0 ? null : v);
    const line = (list, top, colour) => ({ d: path(at.map((k) => [across(k), list[k] === null ? null : list[k] / top])), colour });
    const soft = "var(--tsnb-soft)", window = store.stream.window || 8, max = (list) => list.reduce((top, v) => (v > top ? v : top), 0);
    const prepared = x.map((_, k) => known(peak(fill, k))), farthest = x.map((_, k) => known(peak(lag, k))), fastest = x.map((_, k) => known(peak(rate, k)));
    // of what is in sight alone: a page that was opened later has the same
    const tops = [[prepared, window], [farthest, window], [fastest, 1]].map(([list, least]) => roundTop(Math.max(least, max(list))));
    const each = (lists, top, all) => (many ? [line(all, top, soft)] : lists.map((list, lane) => line(list, top, paint(lane))));
    const origin = reel.last ? reel.last.t : 0;
    const marks = store.marks.map(({ t }) => 1 + (t - origin) / spanS).filter((v) => v >= 0 && v <= 1).map((v) => `M${(v * WIDE).toFixed(1)} 0V${HIGH}`).join("");
    return {
      marks,
      lines: [
        [{ ...line(prepared, tops[0], soft) }],
        each(lag, tops[1], farthest),
        each(rate, tops[2], fastest),
        areas(share, at, across),
      ],
    };
  }
}

/** Shares lie one on another: the topmost is painted first, each over the one before. None where nobody computed. */
export function areas(share, at, across) {
  return share.map((list, lane) => {
    const runs = [];
    at.forEach((k, n) => {
      if (list[k] === null || list[k] === undefined) return;
      if (n && runs.length && runs.at(-1).at(-1) === at[n - 1]) runs.at(-1).push(k);
      else runs.push([k]);
    });
    const ground = (k) => `${(across(k) * WIDE).toFixed(1)} ${HIGH}`;
    const d = runs.map((run) => `${path(run.map((k) => [across(k), list[k]]))}L${ground(run.at(-1))}L${ground(run[0])}Z`).join("");
    return { d, colour: paint(lane), kind: share.length > MANY ? "tsnb-cell-area tsnb-cell-thin" : "tsnb-cell-area" };
  }).reverse();
}
