// Which trials have a row, in which order, and which are folded away. Pure.

const FOLD_FROM = 9; // with fewer rows than this nothing is folded
const KEPT = 4; // of those that have ended, the latest stay

const FOLDED = { done: "done", left: "left", gone: "left", stopped: "stopped", pruned: "pruned", interrupted: "interrupted" };

/**
 * The lanes that have a row, and the folded ones: {rows: [lane], folds: [{kind, word, lanes}]}.
 *
 * sort: {by, down} or null; value(lane, by) gives what is sorted by; filter: text that a name has to have; open: kinds
 * that are not folded. Trials that failed are never folded.
 */
export function arranged(lanes, { sort, filter = "", open = [] }, value) {
  const wanted = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (lane) => wanted.every((word) => lanes[lane].name.toLowerCase().includes(word));
  const all = lanes.map((_, lane) => lane).filter((lane) => lanes[lane] && fits(lane));
  const kind = (lane) => (lanes[lane].here ? "" : FOLDED[lanes[lane].end || "gone"] || "");
  const ended = all.filter(kind).sort((a, b) => lanes[b].since_s - lanes[a].since_s);
  const room = Math.max(KEPT, FOLD_FROM - 1 - (all.length - ended.length));
  const old = all.length < FOLD_FROM ? [] : ended.slice(room), away = new Set(old.filter((lane) => !open.includes(kind(lane))));
  const folds = new Map();
  const place = (word) => folds.get(word) || folds.set(word, { word, lanes: [] }).get(word);
  for (const lane of old) place(kind(lane)).lanes.push(lane);
  const rows = all.filter((lane) => !away.has(lane));
  return { rows: sort ? sorted(rows, sort, value) : rows, folds: [...folds.values()].map((fold) => ({ ...fold, open: open.includes(fold.word) })) };
}

/** Numbers by size, texts by their letters and the numbers in them; what is unknown comes last, whichever way. */
export function sorted(rows, { by, down }, value) {
  const way = down ? -1 : 1;
  return rows.map((lane) => [lane, value(lane, by)]).sort(([x, a], [y, b]) => {
    const known = [a, b].map((v) => typeof v === "string" || Number.isFinite(v));
    if (known[0] !== known[1]) return known[0] ? -1 : 1;
    const less = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
    return known[0] ? way * less || x - y : x - y;
  }).map(([lane]) => lane);
}
