// Words and numbers as people read them. Pure.

export const COLOURS = [
  // Okabe and Ito's palette, without its black and its yellow (too faint on white): colour-blind people tell these apart
  "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8B7FD3", "#8C8C8C",
];

export const colour = (lane) => COLOURS[lane % COLOURS.length];

/** States in which readings arrive; in all others the buttons are off. */
export const LIVE = new Set(["starting", "serving", "idle", "blocked", "failed", "stopping"]);

const STREAM_TONES = { serving: "ok", blocked: "ok", idle: "soft", starting: "warn", failed: "bad", stopping: "warn" };

/** ok, warn, bad or soft: how the dot before the stream's name is painted. */
export const tone = (state) => STREAM_TONES[state] || "soft";

const STATES = { gone: "left" };

/** A consumer's state: its label and its tone. `forS`: seconds in that state. */
export function consumerState(state, forS, live) {
  if (!live && state !== "gone") return { label: "ended", tone: "soft" };
  if (state === "parked") return { label: `parked ${clock(forS)}`, tone: "warn" };
  const tones = { "sets the pace": "ok", waiting: "bad", skipping: "warn" };
  return { label: STATES[state] || state, tone: tones[state] || "soft" };
}

/** 72 -> "1:12", 3700 -> "1:01:40". */
export function clock(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const two = (n) => String(n).padStart(2, "0");
  const h = Math.floor(whole / 3600), m = Math.floor(whole / 60) % 60, s = whole % 60;
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

/** Where on a time axis: 0 -> "now", -60 -> "1:00", the first with "ago". */
export const ago = (seconds, first) => (seconds > -0.5 ? "now" : clock(-seconds) + (first ? " ago" : ""));

/** 612.3 -> "612", 9.63 -> "9.6", 12345 -> "12,345", NaN -> "–". */
export function count(value) {
  if (!Number.isFinite(value)) return "–";
  const digits = Math.abs(value) < 9.95 && !Number.isInteger(value) ? 1 : 0;
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export const percent = (share) => (Number.isFinite(share) ? `${Math.round(share * 100)} %` : "–");

/** 212.4 -> "212 MiB", 3200 -> "3.1 GiB". */
export function mebibytes(value) {
  if (!Number.isFinite(value)) return "–";
  return value >= 1000 ? `${(value / 1024).toFixed(1)} GiB` : `${value < 9.95 ? value.toFixed(1) : Math.round(value)} MiB`;
}

/** A logged number: accuracies between 0 and 1 as per cent, others with four figures at most. */
export function metric(name, value) {
  if (!Number.isFinite(value)) return "–";
  if (/acc/i.test(name) && value >= 0 && value <= 1) return `${(value * 100).toFixed(1)} %`;
  const size = Math.abs(value);
  if (value !== 0 && (size >= 1e5 || size < 1e-3)) return value.toExponential(1);
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(3);
}

/** How far a consumer has come: 2 epochs and 0.66 of the third -> "2.66". */
export function progress(row, epochBatches) {
  if (!row || row.epoch < 0) return "–";
  return epochBatches ? (row.epoch + Math.min(1, row.position / epochBatches)).toFixed(2) : String(row.epoch + 1);
}

/** A pace keeps one decimal up to 100, so that its width stays the same: 9 -> "9.0". */
export const pace = (value) => (Number.isFinite(value) && value < 99.95 ? value.toFixed(1) : count(value));

const NAMES = { absent: "not served", gone: "ended", stale: "no news", serving: "", blocked: "" };

/** The word beside the stream's name; none while all is well. */
export const streamWord = (state) => NAMES[state] ?? state;

/** The sentence in two parts: what is said, and the numbers behind it. Per cent as everywhere here: "38 %". */
export function sentence(words) {
  const text = words.replace(/(\d)%/g, "$1\u00a0%");
  const cut = text.search(/[:.] /);
  return cut < 0 ? [text, ""] : [text.slice(0, cut + 1), text.slice(cut + 1)];
}

/** How much of `mostS` a chart shows after `seconds` of history: a young stream is not a dot at the edge. */
export const spanFor = (seconds, mostS) => [30, 60, 90, 120, 180, 300].find((span) => span >= seconds && span < mostS) ?? mostS;

/** The next round number whose half is round too: the top of a chart's axis. */
export function roundTop(peak) {
  if (!(peak > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(peak));
  return unit * [1, 2, 4, 6, 8, 10].find((k) => k * unit >= peak * 0.999);
}

/** A top that stays put: it grows when it must and shrinks when less than 40 % of it is used. */
export const steadyTop = (before, peak) => (before > 0 && before >= peak && before * 0.4 <= peak ? before : roundTop(peak));
