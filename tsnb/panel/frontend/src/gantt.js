// When each trial was planned to run, when it did, and what is still to come (tsnb/planners/timeline.py).

import { attribute, make, put, style } from "./dom.js";
import { paint } from "./theme.js";
import { clock } from "./words.js";

const COLUMNS = [["trial", "tsnb-p-name"], ["grey: planned; below: actual; pale: predicted", "tsnb-g-bars"], ["planned end", "tsnb-n tsnb-g-end"], ["end", "tsnb-n tsnb-g-now"]];
const SPANS = [["planned", "planned"], ["actual", "actual"], ["ahead", "predicted"]];

let plans = 0;

export class Gantt {
  constructor() {
    this.caption = make("caption", "tsnb-section");
    this.body = make("tbody");
    const head = COLUMNS.map(([label, name]) => Object.assign(make("th", name, label), { scope: "col" }));
    const table = make("table", "tsnb-table tsnb-machine tsnb-gantt", this.caption, make("thead", "", make("tr", "", ...head)), this.body);
    this.element = make("section", "tsnb-plan", table);
    this.element.id = `tsnb-plan-${++plans}`;
    attribute(this.element, "aria-label", "Plan");
    this.element.hidden = true;
  }

  /** `plan`: as `Timeline.to_dict` has it, or null; `lanes`: the trials of the panel, which give their colours; `shown`: whether a reader has not closed it. */
  draw(plan, lanes, shown) {
    const rows = rowsOf(plan);
    this.known = rows.length > 0;
    this.element.hidden = !this.known || !shown;
    if (this.element.hidden) return;
    put(this.caption, `${plan.title}: minutes and seconds since the start`);
    while (this.body.children.length > rows.length) this.body.lastChild.remove();
    while (this.body.children.length < rows.length) this.body.append(emptyRow());
    rows.forEach((row, k) => {
      const [name, bars, ...texts] = this.body.children[k].children, [swatch, label] = name.children;
      const lane = lanes.findIndex((one) => one && one.name === row.name), colour = lane < 0 ? "var(--tsnb-soft)" : paint(lane);
      put(label, row.name);
      name.title = row.name;
      swatch.style.visibility = lane < 0 ? "hidden" : "visible";
      for (const part of [swatch, bars]) style(part, "--tsnb-lane", colour);
      row.spans.forEach((span, at) => {
        const bar = bars.firstChild.children[at];
        bar.hidden = !span;
        if (!span) return;
        style(bar, "left", `${span.left.toFixed(2)}%`);
        style(bar, "width", `${span.width.toFixed(2)}%`);
        attribute(bar, "title", span.words);
      });
      [row.planned, row.end].forEach((text, at) => put(texts[at], text));
    });
  }
}

function emptyRow() {
  const name = make("th", "tsnb-p-name", make("span", "tsnb-swatch"), make("span", "tsnb-trial"));
  name.scope = "row";
  const bars = make("div", "tsnb-spans-of", ...SPANS.map(([key]) => make("i", `tsnb-g-${key}`)));
  return make("tr", "", name, make("td", "tsnb-g-bars", bars), make("td", "tsnb-n"), make("td", "tsnb-n"));
}

/** The rows: of each trial its bars in per cent of the whole plan, and its ends as words. */
export function rowsOf(plan) {
  const trials = (plan && plan.trials) || [], ends = trials.flatMap((trial) => SPANS.map(([key]) => (trial[key] ? trial[key][1] : 0)));
  const scale = 100 / Math.max(1e-9, ...ends);
  return trials.map((trial) => {
    const spans = SPANS.map(([key, title]) => {
      if (!trial[key]) return null;
      const [begin, end] = trial[key];
      return { left: begin * scale, width: (end - begin) * scale, words: `${trial.name}: ${title} ${clock(begin)} to ${clock(end)}` };
    });
    const last = trial.ahead || trial.actual, word = trial.ahead ? "predicted" : "actual";
    // nobody knows when a paused one ends, nor when one starts that waits for its place
    const end = trial.paused ? "paused" : trial.held ? "held up" : last ? `${clock(last[1])} ${word}` : "–";
    return { name: trial.name, spans, planned: trial.planned ? clock(trial.planned[1]) : "–", end };
  });
}
