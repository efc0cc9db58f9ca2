// Which of several streams is shown, and which of the others need a look.

import { attribute, button, choice, make, put } from "./dom.js";
import { shownState } from "./header.js";
import { toneOf } from "./sentence.js";
import { sentence, streamWord } from "./words.js";

const NAMED = 3; // of those that need a look, by buttons; the list has all
const LOOK = new Set(["warn", "bad"]); // who limits whom is no trouble: the list says it

/** What each stream says in short: {name, says, look}, `look`: whether somebody should see why. Names are never empty. */
export function streamsSay(stores) {
  return stores.map((store, at) => {
    const state = shownState(store), word = streamWord(state), lead = sentence({ text: "", lead: 0, ...store.say })[0].trim().replace(/:$/, "");
    const says = state === "stale" || !lead ? word : lead.includes(word) ? lead : `${word}: ${lead}`;
    return { name: store.stream.name || `stream ${at + 1}`, says, look: LOOK.has(toneOf(store, state)) };
  });
}

/** A choice of one stream among several, and a line that leads to those that need a look. */
export class Chooser {
  /** `chosen`: called with the name of a stream. */
  constructor(chosen) {
    const { box, select } = choice("stream", {}, chosen);
    Object.assign(this, { select, box });
    this.words = make("span");
    this.names = Array.from({ length: NAMED }, (_, k) => button("", "tsnb-look", () => chosen(this.led[k])));
    this.rest = make("span");
    this.line = make("p", "tsnb-looks", this.words, ...this.names, this.rest);
    this.spoken = make("span", "tsnb-unseen");
    attribute(this.spoken, "role", "status");
    this.element = make("div", "tsnb-chooser", box, this.line, this.spoken);
  }

  /** `at`: which of them is shown. */
  draw(stores, at) {
    if (stores.length < 2) return;
    const all = streamsSay(stores), led = all.filter(({ look }) => look);
    this.fill(all, at);
    const verb = led.length === 1 ? "needs" : "need";
    put(this.words, led.length ? `${led.length} of ${all.length} streams ${verb} attention:` : `${all.length} streams, none needs attention`);
    this.led = led.map(({ name }) => name);
    this.names.forEach((one, k) => {
      one.hidden = !led[k];
      if (!led[k]) return;
      put(one, led[k].name);
      attribute(one, "title", led[k].says);
      attribute(one, "aria-label", `Show ${led[k].name}: ${led[k].says}`);
      attribute(one, "aria-pressed", led[k].name === all[at].name);
    });
    put(this.rest, led.length > NAMED ? `and ${led.length - NAMED} more` : "");
    put(this.spoken, led.length ? `${this.words.textContent} ${this.led.join(", ")}` : "");
  }

  fill(all, at) {
    const { select } = this;
    while (select.length > all.length) select.lastChild.remove();
    while (select.length < all.length) select.append(make("option"));
    all.forEach(({ name, says, look }, k) => {
      const option = select.options[k];
      put(option, `${look ? "▲ " : ""}${name}${says ? ` · ${says}` : ""}`);
      attribute(option, "value", name);
    });
    if (select.value !== all[at].name) select.value = all[at].name;
    attribute(select, "title", select.options[at].textContent);
  }
}
