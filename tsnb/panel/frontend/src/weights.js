// The weights by which compute is divided, to be set: a number a trial, in a list that opens beside the pacing.

import { attribute, button, grey, isGrey, make, put } from "./dom.js";

/** What a weight may be: a number above 0. */
export const isWeight = (text) => Number.isFinite(Number(text)) && Number(text) > 0;

/** Whom a weight may be given: the trials that are attached, a group once for all of its ranks, and who has one already. */
export function weighed({ lanes, stream }) {
  const here = lanes.filter((lane) => lane && lane.here).map(({ name }) => name.replace(/\[.*$/, ""));
  return [...new Set([...here, ...Object.keys(stream.weights || {})])];
}

export class Weights {
  /** `set`: called with all weights other than 1, by name. */
  constructor(set) {
    this.set = set;
    this.fields = new Map();
    this.rows = make("div", "tsnb-menu-boxes");
    this.why = make("p", "tsnb-refusal");
    attribute(this.why, "role", "alert");
    this.go = Object.assign(make("button", "tsnb-button tsnb-log-button", "Set"), { type: "submit" });
    this.form = make("form", "tsnb-menu tsnb-weights", make("p", "tsnb-soft", "A trial with weight 2 gets twice the compute of a trial with weight 1."), this.rows, this.why, this.go);
    this.form.hidden = true;
    this.open = button("weights…", "tsnb-weights-button", () => this.toggle(this.form.hidden));
    this.element = make("span", "tsnb-tool", this.open, this.form);
    this.toggle(false);
    this.form.onsubmit = (event) => {
      event.preventDefault();
      if (isGrey(this.go)) return;
      put(this.why, "");
      set(Object.fromEntries([...this.fields].map(([name, { field }]) => [name, Number(field.value)]).filter(([, weight]) => weight !== 1)));
      this.fields.forEach((one) => (one.typed = false));
      this.toggle(false);
      this.open.focus();
    };
    this.element.onkeydown = (event) => {
      if (event.key !== "Escape" || this.form.hidden) return;
      event.stopPropagation();
      this.toggle(false);
      this.open.focus();
    };
    this.element.onfocusout = (event) => event.relatedTarget && !this.element.contains(event.relatedTarget) && this.toggle(false);
    document.addEventListener("pointerdown", (event) => !this.form.hidden && !event.composedPath().includes(this.element) && this.toggle(false));
  }

  toggle(on) {
    this.form.hidden = !on;
    attribute(this.open, "aria-expanded", on);
    if (!on) return this.fields.forEach((one) => (one.typed = false));
    if (this.store) this.draw(this.store, true, this.idle);
    const [first] = this.fields.values();
    if (first) first.field.focus();
  }

  refused(why) {
    put(this.why, `Not changed: ${why}`);
  }

  /** `shown`: whether the pacing is that of weights; `idle`: why nothing can be asked of the stream now. */
  draw(store, shown, idle) {
    Object.assign(this, { store, idle });
    this.element.hidden = !shown;
    if (!shown && !this.form.hidden) this.toggle(false);
    grey(this.open, idle);
    attribute(this.open, "title", idle ? `Weights: not now, ${idle}` : this.why.textContent || "Share of the compute that each trial gets");
    if (this.form.hidden) return;
    const names = weighed(store), { weights = {} } = store.stream;
    for (const [name, { row }] of this.fields) if (!names.includes(name)) (row.remove(), this.fields.delete(name));
    for (const name of names) if (!this.fields.has(name)) this.add(name);
    for (const [name, one] of this.fields) if (!one.typed) one.field.value = String(weights[name] ?? 1);
    this.check();
  }

  add(name) {
    const field = Object.assign(make("input", "tsnb-filter tsnb-value-now"), { type: "number", min: 0, step: "any" });
    attribute(field, "aria-label", `weight of ${name}`);
    const row = make("label", "", make("span", "tsnb-trial", name), field), one = { field, row, typed: false };
    row.title = name;
    field.oninput = () => ((one.typed = true), this.check());
    this.fields.set(name, one);
    this.rows.append(row);
  }

  check() {
    const wrong = [...this.fields].filter(([, { field }]) => !isWeight(field.value)).map(([name]) => name);
    const why = this.idle || (wrong.length ? `enter a number above 0 for ${wrong[0]}` : this.fields.size ? "" : "no trial is attached");
    grey(this.go, why);
    attribute(this.go, "title", why ? `Set: not now, ${why}` : "Use these weights from now on");
  }
}
