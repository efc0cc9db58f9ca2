// Trials that take batches of no stream: a row each, with what they logged, below those of the stream.

import { attribute, button, make, put } from "./dom.js";
import { icon, showIcon } from "./icons.js";
import { metricsOf } from "./lanes.js";
import { clock, consumerState, metric } from "./words.js";

const METRICS = 3; // columns
const HEAD = ["trial", "state", "duration"];

export class Beside {
  /** `open(name)`: show that trial's drawer. */
  constructor(open) {
    this.open = open;
    this.head = make("tr", "");
    this.body = make("tbody");
    const table = make("table", "tsnb-table tsnb-beside", make("thead", "", this.head), this.body);
    attribute(table, "aria-label", "Trials without a stream");
    this.element = make("section", "tsnb-besides", make("h3", "tsnb-section", "Trials without a stream"), table);
    this.rows = new Map();
  }

  /** `all`: as the kernel tells them; `lanes`: a trial that has a row on the stream has none here; `originS`: when the stream's time began. */
  draw(all = [], lanes = [], originS = 0) {
    const shown = all.filter((one) => !lanes.some((lane) => lane && lane.name === one.name && isOf(lane, one, originS)));
    this.element.hidden = !shown.length;
    if (!shown.length) return;
    const metrics = metricsOf(shown.map((one) => ({ metrics: Object.keys(one.metrics) }))).slice(0, METRICS);
    const heads = [...HEAD, ...metrics], key = heads.join("\n");
    if (key !== this.heads) {
      this.heads = key;
      this.head.replaceChildren(...heads.map((word, k) => Object.assign(make("th", k > 1 ? "tsnb-n" : "", word), { scope: "col" })));
      this.rows.forEach(({ element }) => element.remove());
      this.rows.clear();
    }
    for (const [name, { element }] of this.rows) if (!shown.some((one) => one.name === name)) (element.remove(), this.rows.delete(name));
    for (const one of shown) {
      if (!this.rows.has(one.name)) this.rows.set(one.name, this.row(one.name, metrics.length));
      const { element, mark, word, cells, name } = this.rows.get(one.name), { label, tone } = consumerState(one.state, one.duration_s, true);
      if (!element.parentElement) this.body.append(element);
      showIcon(mark, { running: "streaming" }[one.state] || one.state);
      put(word, one.state === "paused" ? one.state : label);
      word.parentElement.dataset.tone = one.state === "running" ? "ok" : tone;
      attribute(word.parentElement, "title", one.error ? `${label}: ${one.error}` : label);
      put(cells[0], clock(one.duration_s));
      metrics.forEach((metricName, k) => put(cells[k + 1], metricName in one.metrics ? metric(metricName, Number(one.metrics[metricName])) : "–"));
      name.title = one.error ? `${one.name}: ${one.error}` : one.name;
    }
  }

  row(name, metrics) {
    const mark = icon(), word = make("span"), open = button(name, "tsnb-trial tsnb-open", () => this.open(name));
    const cells = Array.from({ length: metrics + 1 }, () => make("td", "tsnb-n"));
    const head = Object.assign(make("th", "", open), { scope: "row" });
    return { mark, word, cells, name: open, element: make("tr", "", head, make("td", "", mark, word), ...cells) };
  }
}

/** Whether a lane is of that very trial, and not of an earlier run of its name, which had left before the trial began. */
export const isOf = ({ here, pending, since_s }, { started_s = 0 }, originS) => Boolean(here || pending || !(originS > 0) || originS + since_s >= started_s);
