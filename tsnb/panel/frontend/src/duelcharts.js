// What the two charts of a duel draw: the difference of each seed, and the evidence after it. Pure.

import { colourIn } from "./theme.js";
import { metric } from "./words.js";

const FEWEST = 8; // seeds that have room at least
const BESIDE = 0.3; // of the way between two seeds, before the first and behind the last
const AIR = 1.15; // of an axis, beyond what is farthest from its middle

/** What the two charts of a duel draw: up is better in both. */
export function chartsOf({ blocks, mode, most, needed, metric: name }, theme) {
  const way = mode === "min" ? -1 : 1, x = blocks.map((_, k) => k + 1), room = Math.max(blocks.length, Math.min(most, FEWEST));
  const gains = blocks.map(({ difference, favours }) => (difference === null ? Infinity * sideOf(favours) || 0 : way * difference));
  const found = Math.max(0, ...gains.filter(Number.isFinite).map(Math.abs)), far = found || 1, top = AIR * far;
  const logs = blocks.map(({ evidence, for: side }) => sideOf(side) * Math.log2(evidence)), decides = Math.log2(needed);
  const high = AIR * Math.max(decides, ...logs.map(Math.abs)), edge = [1 - BESIDE, room + BESIDE];
  const level = (y) => ({ lane: "level", x: [edge[0], blocks.length + BESIDE], y: [y, y] });
  const signed = (value) => (value > 0 ? "+" : "") + metric("", value);
  const base = {
    span: edge,
    marks: [],
    place: (at) => `seed ${(blocks[Math.min(blocks.length, Math.max(1, Math.round(at))) - 1] || { block: "–" }).block}`,
    step: 1, // of the arrow keys: a seed
    times: [`seed ${blocks.length ? blocks[0].block : 1}`, "", room > blocks.length ? "to come" : `seed ${blocks[blocks.length - 1].block}`],
    now: "last seed",
  };
  const of = (lane, label, y, own, dots) => [{ lane, name: label, x, y, own, raw: y, dots }];
  const colours = (lane) => new Map([[lane, colourIn(lane, theme.dark)], ["level", theme.soft]]);
  return [
    {
      ...base,
      title: "Difference by seed",
      unit: `${name}, candidate minus incumbent; up is better`,
      curves: of(0, "difference", gains.map((gain) => Math.min(top, Math.max(-top, gain))), gains.map((_, k) => k), true),
      formers: [level(0)],
      colours: colours(0),
      range: [-top, top],
      // where no seed has a difference, an arm that failed stands on the other's side, beyond all numbers
      up: () => [-far, 0, far].map((value) => [value, value ? (found ? signed(way * value) : value > 0 ? "better" : "worse") : "0"]),
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
