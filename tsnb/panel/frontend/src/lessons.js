// The section on learning: its tools, and a chart of each chosen metric. What is chosen is kept with the panel.

import { attribute, button, grey, isGrey, make, put, style } from "./dom.js";
import { Importance } from "./importance.js";
import { metricsOf } from "./lanes.js";
import { telling } from "./order.js";
import { Parallel } from "./parallel.js";
import { decisive, usual } from "./outcome.js";
import { Scatter } from "./scatter.js";
import { axesOf, bestSoFar, lanesOfSweeps, numberAxis } from "./sweep.js";
import { IN_COLOUR, against, calmExtent, constantOf, curvesOf, diverged, formersOf, fitsLog, inRange, breaksOf, padded, ranked, setsOf } from "./learning.js";
import { Plot } from "./plot.js";
import { colourIn } from "./theme.js";
import { isShare, textsOf, ticks, timeTicks } from "./ticks.js";
import { clock, count, metric } from "./words.js";

const SHOWN = 2; // charts where nobody has chosen: below each other where the page is narrow
const MOST = 6;
const NARROWEST = { batch: 4, epoch: 0.04, time: 4 }; // what can be zoomed to
const EARLY = new Set(["pruned", "failed", "crashed"]); // ends of trials that nobody waits for
const ALL_IN_COLOUR = 8; // more curves than this, and only the best have colour
const SLOW_MS = 1000; // many curves are drawn once a second

const SIDES = ["parameters", "scatter", "importance"]; // beside the best of a sweep

const USUAL = { kind: "curves", side: "parameters", scatter: {}, show: null, axis: "batch", smooth: 0.6, log: [], against: "", former: true };

export class Lessons {
  /** `keep(view)` is called with what was chosen. */
  constructor(theme, keep, { pointed = () => {}, wantParams = () => {} } = {}) {
    Object.assign(this, { theme, keep, pointed, wantParams, hidden: new Set(), lit: null, drawnMs: 0, plots: new Map(), view: { ...USUAL } });
    this.kind = several("", ["curves", "sweep"], (kind) => this.choose({ kind }), "curves or the sweep");
    this.best = new Plot((at) => this.best.point(at, true)); // null: the pointer has left
    this.parallel = new Parallel((lane) => this.pointed(lane));
    this.scatter = new Scatter((lane) => this.pointed(lane), (change) => this.choose({ scatter: { ...this.view.scatter, ...change } }));
    this.importance = new Importance();
    this.side = several("", SIDES, (side) => this.choose({ side }), "parameters, scatter or importance");
    this.show = menu("show", () => this.news());
    this.against = select("compare with", (name) => this.choose({ against: name }));
    this.axis = several("by", ["batch", "epoch", "time"], (axis) => this.choose({ axis }), "horizontal axis");
    this.reset = button("all of it", "tsnb-choice tsnb-reset", () => this.look(null));
    attribute(this.reset, "title", "Show the whole charts again (double-click or Escape in a chart)");
    this.scale = several("", ["linear", "log"], (scale) => this.choose({ log: scale === "log" ? this.names : [] }));
    this.formers = button("former runs", "tsnb-choice tsnb-formers", () => this.choose({ former: !this.view.former }));
    attribute(this.formers, "title", "Show the run before of each trial that runs again, as a faint dashed line");
    this.slider = make("input", "tsnb-slider");
    Object.assign(this.slider, { type: "range", min: 0, max: 0.98, step: 0.02 });
    attribute(this.slider, "aria-label", "smooth");
    this.slider.oninput = () => this.choose({ smooth: Number(this.slider.value) });
    this.weight = make("span", "tsnb-weight");
    const smooth = make("label", "tsnb-tool tsnb-plain", make("span", "tsnb-soft", "smooth"), this.slider, this.weight);
    // where there is no room for all in one line, half of them stand in the next: none alone
    const group = (...parts) => make("span", "tsnb-tools-of", ...parts);
    const what = group(group(this.kind.element, this.side.element), group(this.show.element, this.against.element)), how = group(this.axis.element, group(smooth, this.scale.element), this.formers, this.reset);
    const tools = make("div", "tsnb-tools", make("h3", "tsnb-section", "Learning"), what, how);
    this.empty = make("p", "tsnb-empty-chart tsnb-soft");
    this.empty.append("Curves appear with the first ", make("code", "", "tsnb.log(loss=…)"), " of a trial.");
    this.body = make("div", "tsnb-lessons");
    this.element = make("section", "tsnb-learning", tools, this.body);
    attribute(this.element, "aria-label", "Learning curves");
    this.observer = new ResizeObserver(() => this.news(true));
    this.observer.observe(this.body);
  }

  /** Take up what was chosen before the page was loaded. */
  restore(view) {
    if (view && typeof view === "object") this.view = { ...USUAL, ...view };
  }

  choose(change) {
    this.view = { ...this.view, ...change };
    this.keep(this.view);
    this.news(true);
  }

  news(now) {
    if (now) this.drawnMs = 0;
    if (this.store) this.draw(this.store);
  }

  /** The numbers whose charts are shown. */
  chosen(store) {
    const all = metricsOf(store.lanes), { show } = this.view;
    return (show || usual(store, SHOWN)).filter((name) => all.includes(name)).slice(0, MOST);
  }

  draw(store) {
    this.store = store;
    const all = metricsOf(store.lanes), chosen = this.chosen(store);
    this.names = chosen;
    this.drawTools(store, all, chosen);
    const busy = performance.now() - this.drawnMs < (store.lanes.length > ALL_IN_COLOUR ? SLOW_MS : 0);
    if (busy || !this.theme() || !this.body.clientWidth) return;
    this.drawnMs = performance.now();
    if (this.isSweep(store) && chosen.length) {
      this.drawSweep(store, (this.view.show ? undefined : decisive(store, [...lanesOfSweeps(store.lanes, store.sweeps)])) ?? chosen[0]);
      return;
    }
    if (this.best.element.isConnected) this.body.replaceChildren();
    for (const [name, plot] of this.plots) if (!chosen.includes(name)) (plot.element.remove(), this.plots.delete(name));
    if (!chosen.length) this.body.replaceChildren(this.empty);
    else if (this.empty.isConnected) this.empty.remove();
    attribute(this.body, "data-charts", Math.min(3, Math.max(1, chosen.length)));
    chosen.forEach((name, k) => {
      if (!this.plots.has(name)) this.plots.set(name, new Plot((at, from) => this.move(at, from), { zoomed: (range, kept) => this.look(range, kept) }));
      const plot = this.plots.get(name);
      if (this.body.children[k] !== plot.element) this.body.insertBefore(plot.element, this.body.children[k] || null);
    });
    // only now: how wide each is depends on how many there are
    for (const name of chosen) this.plots.get(name).draw(this.chart(store, name), this.theme());
  }

  /** Whether the sweep is shown: where there are many trials, by choice. */
  isSweep(store) {
    return this.view.kind === "sweep" && store.lanes.length > ALL_IN_COLOUR;
  }

  /** The best so far, and parallel coordinates of parameters and the first chosen metric. */
  drawSweep(store, name) {
    const { axis, smooth, log } = this.view, way = store.ways[name] || 0, { dark } = this.theme();
    const side = { scatter: this.scatter, importance: this.importance }[this.view.side] || this.parallel;
    if (!this.best.element.isConnected || !side.element.isConnected) this.body.replaceChildren(this.best.element, side.element);
    attribute(this.body, "data-charts", 2);
    this.wantParams();
    const shown = lanesOfSweeps(store.lanes, store.sweeps);
    const curves = curvesOf(store, name, { axis, smooth }).filter(({ lane }) => shown.has(lane));
    const found = way ? bestSoFar(curves, way) : null;
    const best = found ? [{ ...found, name: store.lanes[found.lane].name }] : [];
    const what = { ...this.chart(store, name), title: `${way > 0 ? "highest" : way ? "lowest" : "best"} ${name} so far`, unit: way ? `of all trials, smoothed, by ${axis}; rows have the last values` : "unknown: set tsnb.records.direction to tell whether high is better", way, lit: null, ranged: null, last: null, marks: [], among: [...shown].map((k) => store.lanes[k].name) };
    this.best.draw({ ...what, curves: best, formers: [], log: fitsLog(name, best, log, store.ways), colours: new Map(best.map(({ lane }) => [lane, colourIn(lane, dark)])) }, this.theme());
    this.drawSide(store, name, shown, dark, way);
  }

  /** What parameters have to do with the metric: as lines, as points, or as numbers. */
  drawSide(store, name, shown, dark, way) {
    const { side, scatter } = this.view, lanes = [...shown];
    if (side === "scatter") return this.scatter.draw({ store, lanes, params: telling(store.lanes, store.params), metrics: metricsOf(store.lanes), view: { y: name, ...scatter }, lit: this.lit, dark });
    if (side === "importance") {
      const ended = lanes.filter((k) => !store.lanes[k].here && store.lanes[k].end);
      return this.importance.draw(name, ended.map((k) => [store.params.get(store.lanes[k].name) || [], store.value(k, name)]));
    }
    const values = lanes.map((k) => [k, store.value(k, name)]).filter(([, value]) => Number.isFinite(value));
    const order = ranked(values.map(([lane, value]) => ({ lane, name: store.lanes[lane].name, y: [value] })), way); // as their rows say
    const star = order.findIndex(({ lane }) => lane === store.best(name)); // one that failed may have a better number
    if (star > 0) order.unshift(...order.splice(star, 1));
    const axes = axesOf(store.lanes, store.params), coloured = new Set(order.slice(0, IN_COLOUR).map(({ lane }) => lane));
    const lines = order.map(({ lane, name }) => ({ lane, name, colour: coloured.has(lane) ? colourIn(lane, dark) : null })).reverse();
    const missing = axes.length ? "" : "this notebook's trials have no parameters that differ";
    this.parallel.draw({ axes: values.length ? [...axes, numberAxis(name, values, way < 0 ? -1 : 1)] : axes, lines, lit: this.lit, show: (v) => metric(name, v), missing });
  }

  chart(store, name) {
    const { axis, smooth, against: other, log } = this.view, way = store.ways[name] || 0;
    const base = store.lanes.findIndex((lane) => lane && lane.name === other);
    let curves = curvesOf(store, name, { axis, smooth }).filter(({ lane }) => lane === base || !this.hidden.has(lane));
    const paired = base >= 0 && curves.some(({ lane }) => lane === base);
    if (paired) curves = against(curves, base, smooth);
    const formers = this.view.former && !paired ? formersOf(store, name, { axis, smooth }).filter(({ lane }) => !this.hidden.has(lane)) : [];
    const best = curves.length > ALL_IN_COLOUR ? ranked(curves, way).slice(0, IN_COLOUR) : curves;
    const inLog = !paired && fitsLog(name, curves, log, store.ways), drawn = [...curves, ...formers];
    const gaveUp = (curve) => formers.includes(curve) || EARLY.has(store.lanes[curve.lane].end) || (!paired && diverged(curve, way));
    const ranged = inLog ? drawn : inRange(drawn, gaveUp, way), range = inLog ? null : calmExtent(ranged, false), [low, high] = range ? padded(range) : [-Infinity, Infinity];
    const ends = ({ y }) => y.findLast(Number.isFinite), outside = curves.filter((curve) => ranged[drawn.indexOf(curve)].x.length < curve.x.length && (ends(curve) < low || ends(curve) > high));
    const show = (value) => (paired && value > 0 ? "+" : "") + metric(paired ? "" : name, value);
    return {
      title: name,
      calls: this.calls,
      unit: paired ? `minus that of ${other}, at the same ${axis}` : `by ${axis}${formers.length ? "; dashed: the former run" : ""}${beyond(outside)}`,
      curves,
      ranged,
      formers,
      way,
      lit: this.lit,
      colours: new Map(best.map(({ lane }) => [lane, colourIn(lane, this.theme().dark)])),
      log: inLog,
      paired,
      last: paired ? null : (lane) => store.shown(lane, name), // as its row says, while the curve is smoothed
      show,
      up: (low, high, log) => up(paired ? "" : name, low, high, log),
      across: (low, high, most) => across(axis, low, high, most),
      place: (x, exact, whole) => place(axis, x, whole),
      endOf: (lane) => (store.lanes[lane].here ? "" : store.lanes[lane].end),
      marks: [...setsOf(store, name, axis), ...breaksOf(store, name, axis)].sort((a, b) => a.x - b.x).map(({ lane, x, text, whole = text }) => ({ lane, x, text, whole: `${store.lanes[lane].name}: ${whole}` })),
      zoom: this.zoom && this.zoom.axis === axis ? this.zoom.range : null,
    };
  }

  drawTools(store, all, chosen) {
    const { view } = this, many = store.lanes.length > ALL_IN_COLOUR;
    this.kind.element.hidden = !many;
    this.kind.draw(view.kind);
    this.against.element.hidden = this.isSweep(store);
    this.side.element.hidden = !this.isSweep(store);
    this.side.draw(view.side);
    this.show.draw(all, chosen, (names) => this.choose({ show: names }));
    this.against.draw(store.lanes.filter((lane) => lane && lane.metrics.length).map((lane) => lane.name), view.against);
    this.axis.draw(view.axis);
    this.scale.draw(chosen.some((name) => view.log.includes(name)) ? "log" : "linear");
    if (document.activeElement !== this.slider) this.slider.value = String(view.smooth);
    const over = constantOf(view.smooth) ? `${count(constantOf(view.smooth))} batches` : "off";
    attribute(this.slider, "aria-valuetext", over);
    attribute(this.slider, "title", `smooth: ${over}`);
    put(this.weight, over);
    this.formers.hidden = this.isSweep(store) || !store.lanes.some((lane, k) => lane && chosen.some((name) => store.former(k, name).length));
    attribute(this.formers, "aria-pressed", Boolean(view.former));
    this.reset.hidden = !this.zoom && ![...this.plots.values()].some(({ yChosen }) => yChosen);
    this.element.classList.toggle("tsnb-nothing", !all.length);
  }

  /** Show that stretch of the x axis in all charts; null: all of it. */
  look(range, kept = false) {
    this.zoom = range && range[1] > range[0] ? { axis: this.view.axis, range: atLeast(range, NARROWEST[this.view.axis]) } : null;
    if (!range && !kept) for (const plot of this.plots.values()) plot.yChosen = null;
    this.news(true);
  }

  /** One cursor through all charts; `from` has the pointer. */
  move(at, from) {
    for (const plot of this.plots.values()) plot.point(at, plot === from);
  }

  /** Leave out the curves of these lanes. */
  without(lanes) {
    const key = [...lanes].join();
    if (key === [...this.hidden].join()) return;
    this.hidden = lanes;
    this.news(true);
  }

  light(lane) {
    if (lane === this.lit) return;
    this.lit = lane;
    this.news(true);
  }

  destroy() {
    this.observer.disconnect();
  }
}

/** Which curves leave the chart at its edge. */
const beyond = (curves) => (curves.length ? `; out of range: ${curves.length > 2 ? `${curves.length} trials` : curves.map(({ name }) => name).join(", ")}` : "");

/** A range, or one around its middle that is as wide as can be read. */
const atLeast = ([low, high], wide) => (high - low < wide ? [(low + high - wide) / 2, (low + high + wide) / 2] : [low, high]);

/** What stands beside the y axis. */
function up(name, low, high, log) {
  const heights = ticks(low, high, 5, { log }), texts = textsOf(heights, isShare(name, low, high));
  return heights.map((value, k) => [value, texts[k]]);
}

/** What stands below the x axis: whole batches, epochs, or times. */
function across(axis, low, high, most) {
  const places = axis === "time" ? timeTicks(low, high, most) : ticks(low, high, most, { least: axis === "batch" ? 1 : 0 });
  const texts = axis === "time" ? places.map(clock) : axis === "batch" ? places.map(count) : textsOf(places);
  return places.map((value, k) => [value, texts[k]]);
}

/** A place on the x axis: "1,240", "2.48", "1:20"; whole: "batch 1,240". */
function place(axis, x, whole) {
  const words = axis === "time" ? clock(x) : axis === "epoch" ? x.toFixed(2) : count(Math.round(x));
  return whole ? (axis === "time" ? `after ${words}` : `${axis} ${words}`) : words;
}

/** Buttons of which one is pressed. */
function several(label, words, chosen, named) {
  const buttons = words.map((word) => button(word, "tsnb-choice", () => chosen(word)));
  const box = make("span", "tsnb-several", ...buttons);
  attribute(box, "role", "group");
  attribute(box, "aria-label", named || label || "scale");
  const element = make("span", "tsnb-tool", label ? make("span", "tsnb-soft", label) : null, box);
  return { element, draw: (word) => buttons.forEach((one, k) => attribute(one, "aria-pressed", words[k] === word)) };
}

function select(label, chosen) {
  const box = make("select", "tsnb-select");
  box.onchange = () => chosen(box.value);
  attribute(box, "aria-label", label);
  attribute(box, "title", label);
  const element = make("label", "tsnb-tool", make("span", "tsnb-soft", label), box);
  const draw = (names, value) => {
    const wanted = ["", ...names];
    if (box.options.length !== wanted.length || wanted.some((name, k) => box.options[k].value !== name)) {
      box.replaceChildren(...wanted.map((name) => Object.assign(make("option", "", name || "none"), { value: name })));
    }
    const now = wanted.includes(value) ? value : "";
    if (box.value !== now) box.value = now;
  };
  return { element, draw };
}

/** A list of boxes to tick, behind a button; with a filter where it is long. */
export function menu(label, changed, { most = MOST, what = "charts" } = {}) {
  const open = button("", "tsnb-menu-button", () => toggle(list.hidden));
  const filter = make("input", "tsnb-filter");
  filter.placeholder = "filter";
  attribute(filter, "aria-label", label === "show" ? "filter metrics" : `filter ${label}`);
  const boxes = make("div", "tsnb-menu-boxes");
  const list = make("div", "tsnb-menu", filter, boxes);
  list.hidden = true;
  const element = make("span", "tsnb-tool tsnb-menu-of", make("span", "tsnb-soft", label), open, list);
  let known = "", act = () => {};
  const toggle = (on) => {
    list.hidden = !on;
    attribute(open, "aria-expanded", on);
    if (on) (list.querySelector("input:not([hidden])") || open).focus();
    else changed();
  };
  toggle(false);
  element.onkeydown = (event) => {
    if (event.key !== "Escape" || list.hidden) return; // and not false, which would keep Enter from the button
    event.stopPropagation();
    toggle(false);
    open.focus();
  };
  element.onfocusout = (event) => event.relatedTarget && !element.contains(event.relatedTarget) && toggle(false);
  document.addEventListener("pointerdown", (event) => !list.hidden && !event.composedPath().includes(element) && toggle(false));
  const sift = () => [...boxes.children].forEach((row) => (row.hidden = !row.textContent.toLowerCase().includes(filter.value.toLowerCase())));
  filter.oninput = sift;
  const draw = (all, chosen, pick, full = () => chosen.length >= most) => {
    act = pick;
    put(open, chosen.join(", ") || "nothing yet");
    if (label !== "show") attribute(open, "aria-label", `${label}: ${open.textContent}`);
    filter.hidden = all.length < 9;
    if (known !== all.join("\n")) {
      known = all.join("\n");
      boxes.replaceChildren(...all.map((name) => {
        const tick = Object.assign(make("input"), { type: "checkbox", value: name });
        tick.onchange = () => isGrey(tick) ? (tick.checked = false) : act([...boxes.querySelectorAll("input")].filter((box) => box.checked).map((box) => box.value));
        return make("label", "", tick, name);
      }));
      sift();
    }
    for (const box of boxes.querySelectorAll("input")) {
      box.checked = chosen.includes(box.value);
      grey(box, full(box.value) && !box.checked);
      attribute(box.parentElement, "title", isGrey(box) ? `${most} ${what} at most. Remove one first` : "");
    }
  };
  return { element, draw };
}
