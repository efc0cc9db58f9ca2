// Duels: the verdict so far, what is still needed, the difference of each seed, and the evidence after each. All sentences and numbers
// are those of the kernel (DuelVerdict.told in tsnb/duels/verdict.py).

import "./duels.css";
import { attribute, make, put } from "./dom.js";
import { chartsOf } from "./duelcharts.js";
import { Plot } from "./plot.js";

const TONES = { better: "ok", worse: "bad", undecided: "warn" };

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
