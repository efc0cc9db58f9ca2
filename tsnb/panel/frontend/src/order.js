// Which trials have a row, in which order, and which are folded away. Pure.

const FOLD_FROM = 9; // with fewer rows than this nothing is folded
const KEPT = 4; // of those that have ended, the latest stay; of those that are queued, the next ones

const FOLDED = { done: "done", left: "left", gone: "left", stopped: "stopped", pruned: "pruned", interrupted: "interrupted" };

/** The lanes that a filter leaves: text that a name has to have, or what parameters have to be (`params`: by name). */
export function sifted(lanes, filter = "", params = new Map()) {
  const wanted = filter.toLowerCase().replace(/\s*([<>]=?|=)\s*/g, "$1").split(/\s+/).filter(Boolean);
  const fits = (lane) => wanted.every((word) => matches(word, lanes[lane].name, params.get(lanes[lane].name) || []));
  return lanes.map((_, lane) => lane).filter((lane) => lanes[lane] && fits(lane));
}

/**
 * The lanes that have a row, and the folded ones: {rows: [lane], folds: [{key, sweep, word, lanes, open}]}.
 *
 * sort: {by, down} or null; value(lane, by) gives what is sorted by; filter, params: as `sifted` takes them; open: keys of folds that
 * are not folded; kept: lanes that never fold, as the best; sweeps: the sweep of each trial by its name, which fold apart. Trials that
 * failed are never folded, nor is one alone, whose line would be as high as its row. Where rows are sorted, those that come last fold; else
 * those of the least `merit`, and where that is unknown the oldest.
 */
export function arranged(lanes, { sort, filter = "", open = [], params = new Map(), kept = new Set(), sweeps = {}, merit = () => NaN }, value) {
  const all = sifted(lanes, filter, params);
  const kind = (lane) => (lanes[lane].here || lanes[lane].pending ? "" : FOLDED[lanes[lane].end || "gone"] || "");
  const those = all.filter(kind), ended = sort ? sorted(those, sort, value) : those.sort((a, b) => known(merit(b)) - known(merit(a)) || lanes[b].since_s - lanes[a].since_s);
  const room = Math.max(KEPT, FOLD_FROM - 1 - (all.length - ended.length)), over = ended.slice(room).filter((lane) => !kept.has(lane));
  const queued = all.filter((lane) => (lanes[lane].pending || "").startsWith("queued"));
  const folds = new Map();
  for (const lane of all.length < FOLD_FROM ? [] : [...queued.slice(KEPT), ...over]) {
    const word = kind(lane) || "queued", sweep = sweeps[lanes[lane].name] || "", key = sweep ? `${word} ${sweep}` : word;
    if (!folds.has(key)) folds.set(key, { key, sweep, word, lanes: [], open: open.includes(key) });
    folds.get(key).lanes.push(lane);
  }
  const found = [...folds.values()].filter((fold) => fold.lanes.length > 1);
  const away = new Set(found.flatMap((fold) => (fold.open ? [] : fold.lanes))), rows = all.filter((lane) => !away.has(lane));
  return { rows: sort ? sorted(rows, sort, value) : rows, folds: found };
}

const known = (number) => (Number.isFinite(number) ? number : -Number.MAX_VALUE);

const COMPARED = { "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b };

/** Whether a trial is meant by a word of the filter: a part of its name, lr>0.001, or opt=adam. */
function matches(word, name, params) {
  const [, key, sign, wanted] = word.match(/^([^<>=]+)([<>]=?|=)(.+)$/) || [];
  const own = key && params.find(([one]) => one.toLowerCase() === key);
  if (!own) return name.toLowerCase().includes(word);
  const [a, b] = [Number(own[1]), Number(wanted)];
  if (sign !== "=") return COMPARED[sign](a, b);
  return Number.isFinite(b) ? a === b : plain(own[1]).includes(wanted);
}

/** A parameter's text without the quotes of a Python string, in small letters. */
const plain = (text) => text.replace(/^'(.*)'$/, "$1").toLowerCase();

/**
 * The parameters that tell trials apart, those that most trials have first: [name, ...]. `params`: name of a trial ->
 * [[parameter, value as text], ...].
 */
export function telling(lanes, params) {
  const values = new Map();
  for (const lane of lanes) {
    for (const [name, text] of (lane && params.get(lane.name)) || []) values.set(name, [...(values.get(name) || []), text]);
  }
  const count = lanes.filter((lane) => lane && params.has(lane.name)).length;
  const differ = [...values].filter(([, texts]) => new Set(texts).size > 1 || texts.length < count);
  return differ.sort((a, b) => b[1].length - a[1].length).map(([name]) => name);
}

/** The value of a trial's parameter: a number where it is one, else its text; undefined: it has none of that name. */
export function paramOf(params, trial, name) {
  const own = (params.get(trial) || []).find(([one]) => one === name);
  if (!own) return undefined;
  const number = own[1].trim() ? Number(own[1]) : NaN;
  return Number.isFinite(number) ? number : own[1].replace(/^'(.*)'$/, "$1");
}

/**
 * The rows by the sweep of their trial: [{name, rows, lanes}], in the order in which sweeps began, those of none last; `lanes`: all of
 * its trials, the folded ones too. Empty where there are not at least two kinds. `sweeps`: name of a trial -> its sweep's.
 */
export function groups(lanes, rows, sweeps) {
  const of = (lane) => sweeps[lanes[lane].name] || "", found = new Map();
  lanes.forEach((lane, k) => lane && (found.get(of(k)) || found.set(of(k), { name: of(k), rows: [], lanes: [] }).get(of(k))).lanes.push(k));
  if (found.size < 2) return [];
  for (const lane of rows) found.get(of(lane)).rows.push(lane);
  return [...found.values()].sort((a, b) => !a.name - !b.name);
}

/** Numbers by size, texts by their letters and the numbers in them; what is unknown comes last, whichever way. */
export function sorted(rows, { by, down }, value) {
  const way = down ? -1 : 1;
  return rows.map((lane) => [lane, value(lane, by)]).sort(([x, a], [y, b]) => {
    const known = [a, b].map((v) => typeof v === "string" || Number.isFinite(v));
    if (known[0] !== known[1]) return known[0] ? -1 : 1;
    const less = typeof a === "string" || typeof b === "string" ? String(a).localeCompare(String(b), "en", { numeric: true }) : a - b;
    return known[0] ? way * less || x - y : x - y;
  }).map(([lane]) => lane);
}
