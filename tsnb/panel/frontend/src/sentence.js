// The one plain sentence on who waits for whom.

import { Spoken, attribute, make, put, style } from "./dom.js";
import { decisive, isOver, outcome, span } from "./outcome.js";
import { paint } from "./theme.js";
import { clock, sentence } from "./words.js";

/**
 * A screen reader speaks it when it says something else, not whenever its numbers change: so the live region is a
 * hidden copy. Its box has room for one line (two where the page is narrow), and follows a longer text.
 */
export class Sentence {
  constructor() {
    this.strong = make("b");
    this.rest = make("span");
    this.words = make("span", "", this.strong, this.rest); // one child: it is a grid
    this.spoken = new Spoken("span");
    this.element = make("p", "tsnb-say", this.words, this.spoken.element);
  }

  /** `calls`: short names. */
  draw(store, state, calls = {}) {
    const { say, lanes } = store, stale = state === "stale" && store.lost !== "gone", came = !stale && isOver(store) ? outcome(store) : ["", ""];
    const said = sentence(stale ? noNews(store) : say.text ? say : { text: "The stream is starting." });
    const [first, most] = came[0] ? [came[0], ["", came[1], span(store, Date.now()), say.limited || ""].filter((part, k) => !k || part).join(" ")] : said;
    const rest = state === "recording" && !came[0] && Number.isFinite(say.at) ? `${most} (in its last seconds)` : most; // its rows tell of all its time
    put(this.strong, called(first, calls));
    put(this.rest, called(rest, calls));
    attribute(this.words, "title", called(first + rest, calls) === first + rest ? "" : first + rest);
    const turn = [stale, say.kind, say.pace, came].join();
    if (turn !== this.turn) this.spoken.say(first + rest);
    this.spoken.fade();
    this.turn = turn;
    const best = came[0] ? store.bestOf(decisive(store)) : -1;
    const slowest = best >= 0 ? best : lanes.findIndex((lane) => lane && lane.name === say.pace);
    this.element.dataset.tone = toneOf(store, state);
    style(this.element, "--tsnb-edge", slowest >= 0 && !stale ? paint(slowest) : "");
  }
}

/** A text with the names of trials as short as its panel has them. */
function called(text, calls) {
  const long = Object.keys(calls).filter((name) => calls[name] !== name && text.includes(name)).sort((a, b) => b.length - a.length);
  if (!long.length) return text;
  const escaped = long.map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return text.replace(new RegExp(`(?<![\\w-])(?:${escaped.join("|")})(?![\\w-])`, "g"), (name) => calls[name]);
}

/** soft, limit, warn or bad: what the sentence tells of. */
export function toneOf({ say }, state) {
  if (state === "stale") return "warn";
  if (state === "failed" || say.kind === "failed") return "bad";
  return say.kind === "loader-bound" ? "limit" : "soft";
}

function noNews(store) {
  const silent = clock((store.clock() - store.heardMs) / 1000);
  const lead = `No data for ${silent}.`;
  return { text: `${lead} The notebook's kernel is busy, restarted or gone. The numbers below are the last ones received.`, lead: lead.length };
}
