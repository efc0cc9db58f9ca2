// Duels: the verdict so far, what is still needed, the difference of each seed, and the evidence after each. All sentences and numbers
// are those of the kernel (DuelVerdict.told in tsnb/duels/verdict.py).

import "./duels.css";
import { attribute, make, put } from "./dom.js";
import { Plot } from "./plot.js";
import { colourIn } from "./theme.js";
import { metric } from "./words.js";

const TONES = { better: "ok", worse: "bad", undecided: "warn" };
const FEWEST = 8; // seeds that have room at least
const BESIDE = 0.3; // of the way between two seeds, before the first and behind the last
const AIR = 1.15; // of an axis, beyond what is farthest from its middle

export class Duels {
  constructor(theme) {
    this.theme = theme;
    this.shown = new Map();
    this.element = make("section", "tsnb-duels");
    attribute(this.element, "aria-label", "Duels");
  }

  /** Those that have a trial of the panel. `sweeps`: name of the trial -> its duel's. */
  draw({ duels = [], lanes, beside = [], sweeps }) {
    const here = new Set([...lanes.filter(Boolean), ...beside].map(({ name }) => sweeps[name])), wanted = duels.filter(({ duel }) => here.has(duel));
    for (const [name, one] of this.shown) if (!wanted.some(({ duel }) => duel === name)) (one.close(), this.shown.delete(name));
    for (const told of wanted) {
      if (!this.shown.has(told.duel)) {
        const made = new Shown(this.theme);
        this.shown.set(told.duel, made);
        this.element.append(made.element);
      }
      this.shown.get(told.duel).draw(told);
    }
  }

  close() {
    for (const one of this.shown.values()) one.close();
    this.shown.clear();
  }
}

/** One duel. */
class Shown {
  constructor(theme) {
    this.theme = theme;
    this.name = make("h3", "tsnb-section");
    this.state = make("span", "tsnb-duel-state");
    [this.said, this.needs, this.about] = ["tsnb-duel-said", "tsnb-duel-needs", "tsnb-duel-about tsnb-soft"].map((name) => make("p", name));
    const moved = (at, from) => this.plots.forEach((plot) => plot.point(at, plot === from)); // one cursor through both
    this.plots = [0, 1].map(() => new Plot(moved, { small: true }));
    this.charts = make("div", "tsnb-duel-charts", ...this.plots.map(({ element }) => element));
    this.element = make("div", "tsnb-duel", make("div", "tsnb-duel-head", this.name, this.state), this.said, this.needs, this.about, this.charts);
    this.observer = new ResizeObserver(() => this.plots.forEach((plot) => plot.theme && plot.paint()));
    this.observer.observe(this.charts);
  }

  draw(told) {
    const theme = this.theme();
    if (!theme || (this.told === told && this.drawn === theme)) return;
    Object.assign(this, { told, drawn: theme });
    put(this.name, `Duel ${told.duel}`);
    put(this.state, told.state);
    this.state.dataset.tone = TONES[told.state] || "soft";
    put(this.said, told.said);
    put(this.needs, told.needs);
    put(this.about, told.about);
    this.needs.hidden = !told.needs;
    this.about.hidden = !told.about;
    this.charts.hidden = !told.seeds;
    chartsOf(told, theme).forEach((chart, k) => {
      this.plots[k].draw(chart, theme);
      this.plots[k].tell(true);
    });
  }

  close() {
    this.observer.disconnect();
    this.element.remove();
  }
}

/** What the two charts of a duel draw: up is better in both. */
export function chartsOf({ blocks, mode, most, needed, metric: name }, theme) {
  const way = mode === "min" ? -1 : 1, x = blocks.map((_, k) => k + 1), room = Math.max(blocks.length, Math.min(most, FEWEST));
  const gains = blocks.map(({ difference, favours }) => (difference === null ? Infinity * sideOf(favours) || 0 : way * difference));
  const far = Math.max(0, ...gains.filter(Number.isFinite).map(Math.abs)) || 1, top = AIR * far;
  const logs = blocks.map(({ evidence, for: side }) => sideOf(side) * Math.log2(evidence)), decides = Math.log2(needed);
  const high = AIR * Math.max(decides, ...logs.map(Math.abs)), edge = [1 - BESIDE, room + BESIDE];
  const level = (y) => ({ lane: "level", x: [edge[0], blocks.length + BESIDE], y: [y, y] });
  const signed = (value) => (value > 0 ? "+" : "") + metric("", value);
  const base = {
    span: edge,
    marks: [],
    place: (at) => `seed ${(blocks[Math.min(blocks.length, Math.max(1, Math.round(at))) - 1] || { block: "–" }).block}`,
    times: [`seed ${blocks.length ? blocks[0].block : 1}`, "", room > blocks.length ? "" : `seed ${blocks[blocks.length - 1].block}`],
    now: "last seed",
  };
  const of = (lane, label, y, own, dots) => [{ lane, name: label, x, y, own, raw: y, dots }];
  const colours = (lane) => new Map([[lane, colourIn(lane, theme.dark)], ["level", theme.soft]]);
  return [
    {
      ...base,
      title: "Difference by seed",
      unit: `${name}, candidate minus incumbent; up is better`,
      curves: of(0, "difference", gains.map((gain) => Math.min(far, Math.max(-far, gain))), gains.map((_, k) => k), true),
      formers: [level(0)],
      colours: colours(0),
      range: [-top, top],
      up: () => [-far, 0, far].map((value) => [value, value ? signed(way * value) : "0"]),
      show: (k) => (blocks[k].difference !== null ? signed(blocks[k].difference) : `${{ better: "incumbent has", worse: "candidate has" }[blocks[k].favours] || "both have"} no number`),
    },
    {
      ...base,
      title: "Evidence",
      unit: `after each seed; ${metric("", needed)} decides`,
      curves: of(2, "evidence", logs, logs),
      formers: [level(0), level(decides), level(-decides)],
      colours: colours(2),
      range: [-high, high],
      up: () => [[-decides, "worse"], [0, "1"], [decides, "better"]],
      show: (log) => `${metric("", 2 ** Math.abs(log))}${log ? (log > 0 ? " for better" : " for worse") : ""}`,
    },
  ];
}

const sideOf = (word) => ({ better: 1, worse: -1 })[word] || 0;
