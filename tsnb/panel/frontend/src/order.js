// Which trials have a row, in which order, and which are folded away. Pure.

const FOLD_FROM = 9; // with fewer rows than this nothing is folded
const KEPT = 4; // of those that have ended, the latest stay; of those that are queued, the next ones

const FOLDED = { done: "done", left: "left", gone: "left", stopped: "stopped", pruned: "pruned", interrupted: "interrupted" };

/** Kinds that fold. */
export const FOLDS = [...new Set([...Object.values(FOLDED), "queued"])];

/**
 * The lanes that have a row, and the folded ones: {rows: [lane], folds: [{kind, word, lanes}]}.
 *
 * sort: {by, down} or null; value(lane, by) gives what is sorted by; filter: text that a name has to have, or what its
 * parameters have to be (`params`: by name); open: kinds that are not folded. Trials that failed are never folded.
 */
export function arranged(lanes, { sort, filter = "", open = [], params = new Map() }, value) {
  const wanted = filter.toLowerCase().replace(/\s*([<>]=?|=)\s*/g, "$1").split(/\s+/).filter(Boolean);
  const fits = (lane) => wanted.every((word) => matches(word, lanes[lane].name, params.get(lanes[lane].name) || []));
  const all = lanes.map((_, lane) => lane).filter((lane) => lanes[lane] && fits(lane));
  const kind = (lane) => (lanes[lane].here || lanes[lane].pending ? "" : FOLDED[lanes[lane].end || "gone"] || "");
  const ended = all.filter(kind).sort((a, b) => lanes[b].since_s - lanes[a].since_s);
  const room = Math.max(KEPT, FOLD_FROM - 1 - (all.length - ended.length));
  const queued = all.filter((lane) => (lanes[lane].pending || "").startsWith("queued"));
  const old = all.length < FOLD_FROM ? [] : [...queued.slice(KEPT), ...ended.slice(room)];
  const word = (lane) => kind(lane) || "queued", away = new Set(old.filter((lane) => !open.includes(word(lane))));
  const folds = new Map();
  const place = (name) => folds.get(name) || folds.set(name, { word: name, lanes: [] }).get(name);
  for (const lane of old) place(word(lane)).lanes.push(lane);
  const rows = all.filter((lane) => !away.has(lane));
  return { rows: sort ? sorted(rows, sort, value) : rows, folds: [...folds.values()].map((fold) => ({ ...fold, open: open.includes(fold.word) })) };
}

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
