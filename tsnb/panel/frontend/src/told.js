// What a screen reader hears of trials: that one has joined, was paused, or how it ended. Its numbers stand in its row.

import { Spoken } from "./dom.js";
import { isUntold } from "./outcome.js";
import { STANDING, consumerState } from "./words.js";

const EVERY_MS = 2000; // what comes together is said together
const ALONE = 3; // more of which the same is said are counted

export class Told {
  constructor() {
    this.spoken = new Spoken("p");
    this.element = this.spoken.element;
    this.words = null; // by name, as they were said
    this.news = [];
  }

  draw(store, now = performance.now()) {
    const before = this.words, words = new Map(store.lanes.flatMap((lane, k) => (lane ? [[lane.name, (isUntold(store, lane) && before?.get(lane.name)) || wordOf(store, lane, k)]] : [])));
    this.words = words;
    if (before) for (const [name, word] of words) if (before.get(name) !== word) this.news.push([name, word]);
    this.spoken.fade();
    if (!this.news.length || now - (this.saidMs ?? -Infinity) < EVERY_MS) return;
    this.spoken.say(`${together(this.news).join(", ")}.`);
    Object.assign(this, { saidMs: now, news: [] });
  }
}

/** "a is queued", or where it is so of many: "40 trials are queued". */
function together(news) {
  const alike = new Map();
  for (const [name, word] of news) alike.set(word, [...(alike.get(word) || []), name]);
  const many = (word) => word.replace(/^is /, "are ").replace(/^has /, "have ");
  return [...alike].flatMap(([word, names]) => (names.length > ALONE ? [`${names.length} trials ${many(word)}`] : names.map((name) => `${name} ${word}`)));
}

function wordOf(store, lane, k) {
  const { state } = store.stateOf(k);
  if (lane.pending) return `is ${state}`;
  if (!lane.here) return lane.end && lane.end !== "left" ? `has ended: ${consumerState(lane.end, 0, true).label}${lane.error ? `, ${lane.error}` : ""}` : "has left";
  return STANDING.has(state) ? `is ${state}` : "is running";
}
