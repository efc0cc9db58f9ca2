// One row a trial. Columns have fixed widths, so nothing moves when numbers change or a trial joins.

import { make, put } from "./dom.js";
import { metricsOf, visible } from "./lanes.js";
import { COLUMNS, METRIC_COLUMNS, Row } from "./row.js";
import { LIVE, OVER } from "./words.js";

export class Table {
  constructor(send, choose, light) {
    Object.assign(this, { send, choose, light });
    this.rows = new Map();
    this.head = COLUMNS.map(([label, name]) => make("th", name, label));
    this.head.forEach((cell) => (cell.scope = "col"));
    this.head[this.head.length - 1].append(make("span", "tsnb-unseen", "actions"));
    this.table = make("table", "tsnb-table", make("thead", "", make("tr", "", ...this.head)));
    this.table.setAttribute("aria-label", "Trials on this stream");
    this.empty = make("p", "tsnb-empty");
    this.key = key();
    this.element = make("div", "tsnb-rows", this.table, this.empty, this.key);
    this.element.onpointerleave = () => light(null);
  }

  draw(store, state) {
    const live = LIVE.has(state), metrics = metricsOf(store.lanes).slice(0, METRIC_COLUMNS);
    metrics.forEach((name, k) => put(this.head[7 + k], name));
    put(this.head[5], OVER.has(state) ? "where its time went" : "where its time goes");
    const shown = new Set(visible(store.lanes));
    for (const [lane, row] of this.rows) if (!shown.has(lane)) this.drop(lane, row);
    for (const lane of shown) {
      if (!this.rows.has(lane)) this.add(lane, store.lanes[lane].name);
      this.rows.get(lane).draw(store, state, metrics);
    }
    this.empty.hidden = shown.size > 0;
    this.key.hidden = shown.size === 0;
    const code = make("code", "", "for batch in tsnb.attach(): …");
    if (this.live !== live) this.empty.replaceChildren(...(live ? ["No trial is attached yet. In a trial's cell: ", code] : ["No trial yet."]));
    this.live = live;
  }

  refused(name, what, why) {
    for (const row of this.rows.values()) if (row.name === name) row.refused(what, why);
  }

  add(lane, name) {
    const row = new Row(lane, name, this.send, this.choose);
    row.element.onpointerenter = () => this.light(lane);
    row.element.onfocusin = () => this.light(lane);
    row.element.onfocusout = () => this.light(null);
    this.rows.set(lane, row);
    const after = [...this.rows.keys()].filter((other) => other > lane).sort((a, b) => a - b)[0];
    this.table.insertBefore(row.element, after === undefined ? null : this.rows.get(after).element);
  }

  drop(lane, row) {
    row.element.remove();
    this.rows.delete(lane);
  }
}

function key() {
  const parts = [["computing", "computing"], ["waiting", "waiting for data"], ["held", "held back by the slowest"]];
  const item = ([name, label]) => make("span", "", make("i", `tsnb-${name}`), label);
  return make("div", "tsnb-key tsnb-soft", ...parts.map(item));
}
