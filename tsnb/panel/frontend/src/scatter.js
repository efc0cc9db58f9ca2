// A sweep's trials as points: one of their values across, a metric up, and the state or another value as the colour.

import { attribute, make, style, svgNode as node } from "./dom.js";
import { paramOf } from "./order.js";
import { axisOf, labelsOf, numberAxis } from "./sweep.js";
import { COLOURS, DARK, mix, paint } from "./theme.js";
import { metric } from "./words.js";

const HEIGHT = 210, TOP = 10, BOTTOM = 34, LEFT = 56, RIGHT = 14;
const SIZE = 4.2; // of a mark, from its middle
const JITTER = 0.3; // of the way between two words, so that trials with the same one lie apart
export const STATE = "state";

/** Marks, each in a box from -1 to 1: what a colour says is said by a shape as well, or by its depth. */
const MARKS = {
  disc: "M-1 0A1 1 0 1 0 1 0A1 1 0 1 0 -1 0Z", square: "M-.9 -.9H.9V.9H-.9Z", up: "M0 -1.1L1.1 .9H-1.1Z", diamond: "M0 -1.2L1.2 0L0 1.2L-1.2 0Z",
  down: "M0 1.1L1.1 -.9H-1.1Z", cross: "M-1 -1L1 1M1 -1L-1 1", ring: "M-1 0A1 1 0 1 0 1 0A1 1 0 1 0 -1 0Z",
};
const BY_STATE = { running: ["ring", "var(--tsnb-c1)"], done: ["disc", "var(--tsnb-c1)"], failed: ["cross", "var(--tsnb-bad)"], crashed: ["cross", "var(--tsnb-bad)"], stopped: ["square", "var(--tsnb-held)"], pruned: ["diamond", "var(--tsnb-held)"], interrupted: ["square", "var(--tsnb-warn)"] };
const WORD_MARKS = ["disc", "square", "up", "diamond", "down"];
const OPEN = new Set(["ring", "cross"]); // drawn, not filled

/**
 * How trials are told apart by colour: {of(lane): [mark, colour], legend: [[mark, colour, text]]}. `texts`: Map lane -> text of the chosen
 * value; null: by state, `state(lane)`.
 */
export function colouring(texts, state, dark) {
  if (!texts) return byWord((lane) => state(lane), BY_STATE, ["disc", "var(--tsnb-held)"]);
  const axis = axisOf("", texts);
  if (!axis || axis.kind === "word") {
    const words = axis ? axis.words : [...new Set(texts.values())];
    return byWord((lane) => texts.get(lane), Object.fromEntries(words.map((word, k) => [word, [WORD_MARKS[k % WORD_MARKS.length], paint(k)]])), ["ring", "var(--tsnb-held)"]);
  }
  const [far, near] = dark ? ["#3a4656", DARK[1]] : ["#c6d2de", COLOURS[0]], shade = (part) => mix(near, far, part);
  const ends = labelsOf(axis).filter(([at], k, all) => k === 0 || k === all.length - 1);
  return { of: (lane) => (axis.at.has(lane) ? ["disc", shade(axis.at.get(lane))] : ["ring", "var(--tsnb-held)"]), legend: () => ends.map(([at, text]) => ["disc", shade(at), text]) };
}

function byWord(word, marks, other) {
  const of = (lane) => marks[word(lane)] || other;
  return { of, legend: (lanes) => [...new Map(lanes.map((lane) => [word(lane) ?? "none", of(lane)]))].map(([text, mark]) => [...mark, text]) };
}

export class Scatter {
  /** `light(lane)`: the trial that is pointed at, or null; `choose({x, y, colour})`: what the reader wants to see. */
  constructor(light, choose) {
    this.light = light;
    const pick = (what, label) => {
      const box = make("select", "tsnb-select");
      attribute(box, "aria-label", label);
      box.onchange = () => choose({ [what]: box.value });
      return box;
    };
    this.y = pick("y", "metric up the scatter");
    this.x = pick("x", "value across the scatter");
    this.colour = pick("colour", "colour of the scatter");
    this.drawing = node("svg", { class: "tsnb-scatter", role: "img" });
    this.legend = make("div", "tsnb-soft tsnb-scatter-legend");
    this.box = make("div", "tsnb-parallel-box", this.drawing);
    const soft = (text) => make("span", "tsnb-soft", text);
    this.element = make("figure", "tsnb-learned", make("figcaption", "tsnb-scatter-tools", this.y, soft("by"), this.x, soft("colour"), this.colour), this.box, this.legend);
    this.drawing.onpointerleave = () => light(null);
  }

  /** `lanes`: those of the sweep; `params`: the names that may be chosen; `metrics`: likewise; `view`: {x, y, colour}. */
  draw({ store, lanes, params, metrics, view, lit, dark }) {
    const x = params.includes(view.x) ? view.x : params[0], y = metrics.includes(view.y) ? view.y : metrics[0], colour = params.includes(view.colour) ? view.colour : STATE;
    fill(this.x, params, x), fill(this.y, metrics, y), fill(this.colour, [STATE, ...params], colour);
    const width = this.box.clientWidth;
    if (width < 120) return;
    const textOf = (name) => new Map(lanes.flatMap((k) => ((value) => (value === undefined ? [] : [[k, String(value)]]))(paramOf(store.params, store.lanes[k].name, name))));
    const across = x === undefined ? null : axisOf(x, textOf(x));
    const values = lanes.map((k) => [k, store.value(k, y)]).filter(([k, value]) => Number.isFinite(value) && across && across.at.has(k));
    const up = values.length ? numberAxis(y, values) : null;
    const state = (k) => (store.lanes[k].here ? "running" : store.lanes[k].end || "left");
    const colours = colouring(colour === STATE ? null : textOf(colour), state, dark);
    const points = values.map(([k, value]) => ({ k, at: [spreadOut(across, k), up.at.get(k)], mark: colours.of(k), words: `${store.lanes[k].name}: ${x} ${textOf(x).get(k)}, ${y} ${metric(y, value)}, ${colour === STATE ? state(k) : `${colour} ${textOf(colour).get(k) ?? "none"}`}` }));
    const key = JSON.stringify([width, lit, dark, points, x, y]);
    if (key === this.drawn) return;
    this.drawn = key;
    attribute(this.drawing, "viewBox", `0 0 ${width} ${HEIGHT}`);
    attribute(this.drawing, "height", HEIGHT);
    attribute(this.drawing, "aria-label", points.length ? `${y} by ${x} of ${points.length} trials, coloured by ${colour}` : "no trial has both values yet");
    const px = (part) => LEFT + 8 + part * (width - LEFT - RIGHT - 16), py = (part) => TOP + 8 + (1 - part) * (HEIGHT - TOP - BOTTOM - 16);
    const frame = [node("path", { d: `M${LEFT} ${TOP}V${HEIGHT - BOTTOM}H${width - RIGHT}`, class: "tsnb-axis" })];
    if (up) for (const [part, text] of labelsOf(up, (v) => metric(y, v))) frame.push(label(LEFT - 6, py(part) + 3.5, "end", text));
    if (across && points.length) for (const [part, text] of labelsOf(across)) frame.push(label(px(part), HEIGHT - BOTTOM + 15, "middle", text.length > 12 ? `${text.slice(0, 11)}…` : text));
    if (!points.length) frame.push(label(width / 2, HEIGHT / 2, "middle", "no trial has both values yet"));
    const lighted = points.slice().sort((a, b) => (a.k === lit) - (b.k === lit));
    this.drawing.replaceChildren(...frame, ...lighted.map((point) => this.point(point, px(point.at[0]), py(point.at[1]), point.k === lit)));
    const shown = points.map(({ k }) => k);
    this.legend.replaceChildren(...colours.legend(shown).map(([mark, paint, text]) => {
      return make("span", "", node("svg", { class: "tsnb-scatter-mark", viewBox: "-7 -7 14 14", "aria-hidden": "true" }, drawn(mark, paint, 0, 0, SIZE)), text);
    }));
  }

  point({ k, mark: [mark, paint], words }, x, y, lit) {
    const one = drawn(mark, paint, x, y, lit ? SIZE * 1.6 : SIZE);
    one.append(node("title", {}, words));
    one.onpointerenter = () => this.light(k);
    return one;
  }
}

/** Where a trial lies across: with the same word trials lie beside each other, always at the same place. */
function spreadOut({ kind, words, at }, lane) {
  if (kind !== "word") return at.get(lane);
  const off = (((lane * 0.618034) % 1) - 0.5) * (JITTER / Math.max(1, words.length - 1));
  return Math.min(1, Math.max(0, at.get(lane) + off));
}

function drawn(mark, paint, x, y, size) {
  const path = node("path", { d: MARKS[mark], transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${size.toFixed(1)})`, "stroke-width": OPEN.has(mark) ? 0.5 : 0 });
  style(path, "fill", OPEN.has(mark) ? "transparent" : paint);
  style(path, "stroke", paint);
  return path;
}

const label = (x, y, anchor, text) => node("text", { x: x.toFixed(1), y: y.toFixed(1), "text-anchor": anchor }, text);

function fill(select, names, chosen) {
  if ([...select.options].map(({ value }) => value).join("\n") !== names.join("\n")) select.replaceChildren(...names.map((name) => Object.assign(make("option", "", name), { value: name })));
  if (chosen !== undefined && select.value !== chosen) select.value = chosen;
}
