// How much a sweep's parameters have to do with a metric: a rank correlation for numbers, a share of the variance for words.

import { attribute, make, put, style } from "./dom.js";
import { percent } from "./words.js";

export const FEWEST = 8; // ended trials; of fewer chance alone makes large numbers

/** The rank of each value, from 1; equal values share the mean of theirs. */
export function ranks(values) {
  const order = values.map((value, k) => [value, k]).sort((a, b) => a[0] - b[0]), out = [];
  for (let from = 0, to; from < order.length; from = to) {
    for (to = from; to < order.length && order[to][0] === order[from][0]; to++);
    for (let k = from; k < to; k++) out[order[k][1]] = (from + 1 + to) / 2;
  }
  return out;
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const spread = (values, middle = mean(values)) => values.reduce((sum, value) => sum + (value - middle) ** 2, 0);

/** Spearman's rank correlation, from -1 to 1; 0 where one of them is always the same. */
export function rankCorrelation(a, b) {
  const [x, y] = [ranks(a), ranks(b)], [p, q] = [mean(x), mean(y)], both = spread(x, p) * spread(y, q);
  return both > 0 ? x.reduce((sum, value, k) => sum + (value - p) * (y[k] - q), 0) / Math.sqrt(both) : 0;
}

/** The share of the variance of `values`, by their ranks, that lies between groups, less what chance adds (epsilon squared); 0 to 1. */
export function varianceShare(groups, values) {
  const ranked = ranks(values), all = new Map(), total = spread(ranked);
  groups.forEach((group, k) => all.set(group, [...(all.get(group) || []), ranked[k]]));
  const inside = [...all.values()].reduce((sum, group) => sum + spread(group), 0), free = values.length - all.size;
  if (!(total > 0) || free < 1) return 0;
  return Math.max(0, (total - inside - ((all.size - 1) * inside) / free) / total);
}

/**
 * The parameters by how much they have to do with a metric, the first the most: {trials, found: [{name, kind, value, size}]}. `kind`:
 * "correlation" (`value` from -1 to 1) or "share" (0 to 1); `size`: both as a correlation, to compare them. Of fewer than `FEWEST`
 * trials nothing is found. `trials`: [[parameters of one: [[name, text], ...], its value of the metric], ...].
 */
export function importanceOf(trials) {
  const known = trials.filter(([, value]) => Number.isFinite(value));
  if (known.length < FEWEST) return { trials: known.length, found: [] };
  const names = [...new Set(known.flatMap(([params]) => params.map(([name]) => name)))];
  const found = names.flatMap((name) => {
    const own = known.flatMap(([params, value]) => params.filter(([one]) => one === name).map(([, text]) => [text, value]));
    const texts = own.map(([text]) => text), values = own.map(([, value]) => value), different = new Set(texts).size;
    if (own.length < FEWEST || different < 2) return [];
    if (texts.every((text) => text.trim() && Number.isFinite(Number(text)))) {
      const value = rankCorrelation(texts.map(Number), values);
      return [{ name, kind: "correlation", value, size: Math.abs(value) }];
    }
    if (different > own.length / 2) return []; // nearly each its own: a name, no choice
    const value = varianceShare(texts, values);
    return [{ name, kind: "share", value, size: Math.sqrt(value) }];
  });
  return { trials: known.length, found: found.sort((a, b) => b.size - a.size) };
}

const signed = (value) => (value < 0 ? "\u2212" : "+") + Math.abs(value).toFixed(2);

export class Importance {
  constructor() {
    this.note = make("span", "tsnb-soft");
    this.list = make("dl", "tsnb-importance");
    this.words = make("p", "tsnb-soft tsnb-importance-words");
    this.element = make("figure", "tsnb-learned", make("figcaption", "", make("b", "", "importance"), " ", this.note), this.list, this.words);
  }

  /** `metric`: whose; `trials`: as `importanceOf` takes them, those that have ended. */
  draw(metric, trials) {
    const { trials: count, found } = importanceOf(trials);
    put(this.note, count < FEWEST ? `needs ${FEWEST} ended trials that logged ${metric}; there ${count === 1 ? "is" : "are"} ${count}` : `for ${metric}, of ${count} ended trials`);
    const key = JSON.stringify(found);
    if (key === this.drawn) return;
    this.drawn = key;
    this.list.replaceChildren(...found.flatMap(({ name, kind, value, size }) => {
      const bar = make("i"), words = kind === "share" ? `${percent(value)} of the variance` : `rank correlation ${signed(value)}`;
      style(bar, "width", `${(100 * size).toFixed(1)}%`);
      return [make("dt", "", name), make("dd", "", make("span", "tsnb-importance-bar", bar), make("span", "tsnb-n", words))];
    }));
    put(this.words, found.length ? "Numbers: Spearman's rank correlation, which does not see a best value in the middle. Words: share of the variance of the ranks between them (epsilon squared). A bar shows either as a correlation from 0 to 1." : "");
    attribute(this.list, "aria-label", `Importance of ${found.length} parameters for ${metric}`);
  }
}
