// What each trial computes on a batch, and what it would do with nobody to wait for.

import { attribute, make, put, style } from "./dom.js";
import { paint } from "./theme.js";
import { count, milliseconds } from "./words.js";

const COLUMNS = [
  ["trial", "tsnb-p-name", ""],
  ["per batch", "tsnb-n", "Computing time per batch of the loader"],
  ["alone", "tsnb-n", "Samples per second if a batch were always ready and no other trial to wait for"],
  ["samples/s", "tsnb-n", "Samples per second now"],
  ["weight", "tsnb-n", "Its share of the compute with pacing weights"],
];

export class Paces {
  constructor() {
    this.body = make("tbody");
    const head = COLUMNS.map(([label, name, title]) => Object.assign(make("th", name, label), { title, scope: "col" }));
    this.element = make("table", "tsnb-table tsnb-machine tsnb-paces", make("thead", "", make("tr", "", ...head)), this.body);
    attribute(this.element, "aria-label", "Speed of each trial now, and alone");
  }

  draw(store) {
    const rows = pacesOf(store);
    this.element.hidden = !rows.length;
    while (this.body.children.length > rows.length) this.body.lastChild.remove();
    while (this.body.children.length < rows.length) this.body.append(emptyRow());
    rows.forEach((row, k) => {
      const [name, ...numbers] = this.body.children[k].children, [swatch, label] = name.children;
      put(label, row.name);
      name.title = row.name;
      style(swatch, "--tsnb-lane", paint(row.lane));
      [row.step, row.alone, row.now, row.weight].forEach((text, at) => put(numbers[at], text));
    });
  }
}

function emptyRow() {
  const name = make("th", "tsnb-p-name", make("span", "tsnb-swatch"), make("span", "tsnb-trial"));
  name.scope = "row";
  return make("tr", "", name, ...COLUMNS.slice(1).map(() => make("td", "tsnb-n")));
}

/** The rows: each trial that is attached. */
export function pacesOf({ lanes, last, paces, stream }) {
  const rows = [];
  ((last && last.rows) || []).forEach((row, lane) => {
    if (!row || !lanes[lane]) return;
    const { name } = lanes[lane], weights = stream.weights || {};
    const weight = (stream.pacing || "together").startsWith("weights") ? String(weights[name] ?? 1) : "–";
    const { stepMs, alonePerS } = paces[lane] || { stepMs: NaN, alonePerS: NaN };
    rows.push({ name, lane, step: milliseconds(stepMs), alone: count(alonePerS), now: count(row.samplesPerS), weight });
  });
  return rows;
}
