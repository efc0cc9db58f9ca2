// Words and numbers as people read them. Pure.

/** States in which readings arrive; in all others the buttons are off. */
export const LIVE = new Set(["starting", "serving", "idle", "blocked", "failed", "stopping"]);

/** States of trials that hold nobody and are held by nobody. */
export const STANDING = new Set(["timed out", "paused"]);

/** States of a stream that is over: what is shown is what was. */
export const OVER = new Set(["gone", "recording"]);

const STREAM_TONES = { stale: "warn", serving: "ok", blocked: "ok", idle: "soft", starting: "warn", failed: "bad", stopping: "warn" };

/** ok, warn, bad or soft: how the dot before the stream's name is painted. */
export const tone = (state) => STREAM_TONES[state] || "soft";

const STATES = { gone: "left" };
const END_TONES = { left: "soft", done: "ok", failed: "bad", stopped: "soft", interrupted: "warn", pruned: "soft", crashed: "bad" };

/** A consumer's state: its label and its tone. `forS`: seconds in that state. */
export function consumerState(state, forS, live) {
  if (END_TONES[state]) return { label: state, tone: END_TONES[state] };
  if (!live && state !== "gone") return { label: "ended", tone: "soft" };
  if (state === "paused") return { label: `${state} ${clock(forS)}`, tone: "soft" };
  const tones = { "sets the pace": "ok", waiting: "warn", skipping: "warn", "timed out": "warn" };
  return { label: STATES[state] || state, tone: tones[state] || "soft" };
}

export const NO_ETA = { leftS: NaN, lowS: NaN, highS: NaN, epochs: 0 }; // of a trial, or of all of them

/** How long a trial still takes: 12:30; epoch 1:10 where only the end of its epoch is known. */
export function remaining({ leftS, epochs }) {
  if (!(leftS < 3600000)) return "–";
  return epochs > 0 ? clock(leftS) : `epoch ${clock(leftS)}`;
}

const HOUR = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const WEEKDAY = new Intl.DateTimeFormat("en-GB", { weekday: "short" });

/** The time of day in so many seconds, as the reader's clock has it: "14:32", on another day "Fri 14:32"; `nowMs` since 1970. */
export function hourIn(leftS, nowMs) {
  const then = new Date(nowMs + leftS * 1000), today = then.toDateString() === new Date(nowMs).toDateString();
  return `${today ? "" : `${leftS < 6 * 86400 ? WEEKDAY.format(then) : DATE.format(then)} `}${HOUR.format(then)}`;
}

/** What is left of a trial, below its epochs: "2:53 left", or "ends in 0:09" where only the end of its epoch is known; empty: neither. */
export function leftWords(eta) {
  const left = remaining(eta);
  return left === "–" ? "" : left.startsWith("epoch ") ? `ends in ${left.slice(6)}` : `${left} left`;
}

/** How long all trials still take, and at what time of the reader's day that is; empty where that of one is not known. */
export function allLeft(all, nowMs) {
  const [left, range] = leftOf(all);
  return left && `all done in ${left}, at ${hourIn(all.leftS, nowMs)} ${range}`;
}

/** The same in two parts, without words: 12:30 and (11:00 to 14:00). */
export function leftOf({ leftS, lowS, highS }) {
  return leftS < 3600000 ? [clock(leftS), `(${clock(lowS)} to ${clock(highS)})`] : ["", ""];
}

/** 72 -> "1:12", 3700 -> "1:01:40". */
export function clock(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const two = (n) => String(n).padStart(2, "0");
  const h = Math.floor(whole / 3600), m = Math.floor(whole / 60) % 60, s = whole % 60;
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

/** Where on a time axis: 0 -> "now", -60 -> "1:00", the first with "ago". Of a stream that is over: before its end. */
export function ago(seconds, first, over) {
  if (seconds > -0.5) return over ? "end" : "now";
  return clock(-seconds) + (first ? (over ? " before" : " ago") : "");
}

/** 612.3 -> "612", 9.63 -> "9.6", 12345 -> "12,345", NaN -> "–". */
export function count(value) {
  if (!Number.isFinite(value)) return "–";
  const digits = Math.abs(value) < 9.95 && !Number.isInteger(value) ? 1 : 0;
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** A short time: 12.34 -> "12.3 ms", 1234 -> "1,234 ms". */
export const milliseconds = (value) => (Number.isFinite(value) ? `${value < 99.95 ? value.toFixed(1) : count(value)} ms` : "–");

/** Where a trial's time went, in words; what seldom is there only where it is. */
export function spentWords({ computing, waiting, held, joining, paused, timedOut }) {
  if (!Number.isFinite(computing)) return "no time yet";
  const known = [computing, waiting, held, joining].map((share) => share || 0), rest = Math.max(0, 1 - known.reduce((sum, share) => sum + share, 0));
  const seldom = (share, word) => (share >= 0.005 ? [`${word} ${percent(share)}`] : []);
  const [own, data, others, pass] = known;
  const often = [`computing ${percent(own)}`, `waiting for data ${percent(data)}`, `waiting for slower trials ${percent(others)}`];
  return [...often, ...seldom(pass, "waiting to join a pass"), `between epochs ${percent(paused + timedOut > 0.995 ? 0 : rest)}`, ...seldom(paused, "paused"), ...seldom(timedOut, "timed out")].join(", ");
}

/** As the kernel rounds it: a half goes up, of numbers in 32 bits too. */
export const percent = (share) => (Number.isFinite(share) ? `${Math.round(Number((share * 100).toFixed(4)))} %` : "–");

/** 212.4 -> "212 MiB", 3200 -> "3.1 GiB", 81920 -> "80 GiB", 0.04 -> "41 KiB". */
export function mebibytes(value) {
  if (!Number.isFinite(value)) return "–";
  if (value > 0 && value < 0.095) return `${1024 * value < 9.95 ? (1024 * value).toFixed(1) : Math.round(1024 * value)} KiB`;
  if (value < 1000) return `${value < 9.95 ? value.toFixed(1) : Math.round(value)} MiB`;
  return `${value >= 10189 ? Math.round(value / 1024) : (value / 1024).toFixed(1)} GiB`;
}

/** "3.1 of 16 GiB": the unit is said once where both have the same. */
export function usedOf(used, total) {
  const [a, b] = [mebibytes(used), mebibytes(total)], unit = b.slice(-4);
  return `${a.endsWith(unit) ? a.slice(0, -4) : a} of ${b}`;
}

/** Cores busy: 1.937 -> "1.94", 12.34 -> "12.3". */
export const cores = (value) => (Number.isFinite(value) ? value.toFixed(value < 9.995 ? 2 : 1) : "–");

/** Whether a number is an accuracy by a word of its name: "val_acc", "topAcc", not "grad_accum". */
export const isAccuracy = (name) => /(?:(?<![A-Za-z])[Aa]cc|(?<=[a-z0-9])Acc)(?:urac(?:y|ies))?(?![a-z])|(?<![A-Za-z])ACC(?:URACY)?(?![A-Za-z])/.test(name);

/** A logged number, in one way wherever it stands: accuracies between 0 and 1 as per cent, others with two figures at least and four at most. */
export function metric(name, value) {
  if (value === undefined || value === null) return "–";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  if (isAccuracy(name) && value >= 0 && value <= 1) return `${(value * 100).toFixed(1)} %`;
  const size = Math.abs(value);
  if (value !== 0 && (size >= 1e5 || size < 1e-5)) return value.toExponential(1);
  return value.toFixed(decimalsOf(size));
}

const decimalsOf = (size) => (size >= 100 ? 0 : size >= 10 ? 1 : size >= 1e-2 || size === 0 ? 3 : size >= 1e-3 ? 4 : size >= 1e-4 ? 5 : 6);

const PARAM_LETTERS = 8;

/** A parameter's value where there is little room: 0.00012345 -> 1.23e-4, as all are in a column that is `brief`; the tooltip has all of it. */
export function parameter(value, brief = isLong(value), letters = PARAM_LETTERS) {
  if (value === undefined) return "–";
  const text = typeof value !== "number" ? value : brief && value !== 0 ? Number(value.toPrecision(3)).toExponential() : plainly(value);
  return text.length > letters ? `${text.slice(0, letters - 1)}…` : text;
}

/** Whether a parameter has no room as it is usually written: 0.0003 has, 0.00001 has not. */
export const isLong = (value) => typeof value === "number" && plainly(value).length >= PARAM_LETTERS - 1;

const plainly = (value) => (Number.isFinite(value) ? Number(value.toPrecision(5)).toLocaleString("en-US", { useGrouping: false, maximumFractionDigits: 20, maximumSignificantDigits: 5 }) : String(value));

/** How many epochs a consumer has taken itself: 2 and 0.66 of the third -> "2.66". */
export function progress(row, epochBatches) {
  if (!row || !(row.epochs >= 0)) return "–";
  return epochBatches ? row.epochs.toFixed(2) : String(Math.floor(row.epochs));
}

/** The same with how many there are in all, where that is known: "2.66 of 10". */
export const ofAll = (epochs, all) => (all > 0 && Number(epochs) <= all ? `${epochs} of ${all}` : epochs);

/** A pace keeps one decimal up to 100, so that its width stays the same: 9 -> "9.0". */
export const pace = (value) => (Number.isFinite(value) && value < 99.95 ? value.toFixed(1) : count(value));

const NAMES = { absent: "not served", gone: "ended", stale: "no data", serving: "", blocked: "" };

/** The word beside the stream's name; none while all is well. `when`: the end of a recording, seconds since 1970. */
export function streamWord(state, when) {
  if (state !== "recording") return NAMES[state] ?? state;
  return when > 0 ? `recording of ${DAY.format(when * 1000)}` : "recording";
}

const DATE = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });

/** The sentence in two parts: its lead, which says it all, and the rest. */
export function sentence({ text, lead }) {
  const cut = lead || text.search(/[:.;] /) + 1;
  return [text.slice(0, cut), text.slice(cut)].map((part) => part.replace(/(\d) ?%/g, "$1\u00a0%"));
}

const SPANS = [30, 60, 90, 120, 180, 300, 600, 900, 1800];

/** How much of `mostS` a chart shows after `seconds` of history: a young stream is not a dot at the edge. */
export function spanFor(seconds, mostS) {
  const found = SPANS.find((span) => span >= seconds && span < mostS);
  return found ?? (Number.isFinite(mostS) ? mostS : Math.ceil(seconds / 3600) * 3600);
}

/** The next round number whose half is round too: the top of a chart's axis. */
export function roundTop(peak) {
  if (!(peak > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(peak));
  return unit * [1, 2, 4, 6, 8, 10].find((k) => k * unit >= peak * 0.999);
}
