// Notices: that a trial has ended, or a stream's loader has failed, said where a reader looks: on the page, over whatever is
// scrolled there, and as the browser's own notice while the page is hidden, where the reader has allowed that.

import { attribute, button, make } from "./dom.js";

const STAYS_MS = 12000;
const MOST = 4; // lines at a time; more ends are counted

export class Notices {
  /** `page`: the document; `own`: the browser's Notification, if it has one. */
  constructor(page = document, own = globalThis.Notification) {
    Object.assign(this, { page, own, on: false, known: new Map(), states: [] });
  }

  /** Know how all is, and say nothing of it: a page has opened, or everything was told anew. */
  begin(streams) {
    this.news(streams, true);
  }

  /** Say what has ended since the last time. */
  news({ stores, whole }, silent = false) {
    const lines = [];
    whole.lanes.forEach((lane) => {
      if (!lane) return;
      const now = lane.here || lane.end === "left" ? "" : lane.end, before = this.known.get(lane.name);
      this.known.set(lane.name, now);
      if (now && now !== before) lines.push(`${lane.name} ${now}${lane.error ? `: ${lane.error}` : ""}`);
    });
    stores.forEach(({ state, stream }, k) => {
      if (state === "failed" && this.states[k] !== "failed") lines.push(`The loader of ${stream.name} has failed${stream.failure ? `: ${stream.failure}` : ""}`);
      this.states[k] = state;
    });
    if (lines.length && this.on && !silent) this.say(lines);
  }

  say(lines) {
    const shown = lines.length > MOST ? [...lines.slice(0, MOST - 1), `${lines.length - MOST + 1} more have ended`] : lines;
    this.box().append(this.card(shown));
    if (!this.page.hidden || !this.own || this.own.permission !== "granted") return;
    try {
      new this.own("tsnb", { body: shown.join("\n") });
    } catch (error) {
      console.debug("tsnb: this browser makes no notices of a page", error); // phones: only of a service worker
    }
  }

  card(lines) {
    const card = make("div", "tsnb-notice", ...lines.map((line) => make("p", "", line)));
    const away = button("\u2715", "tsnb-act", () => card.remove());
    attribute(away, "aria-label", "Close this notice");
    card.append(away);
    setTimeout(() => card.remove(), STAYS_MS);
    return card;
  }

  /** Where they stand, on the page rather than in the panel, which may be far away. */
  box() {
    if (!this.corner || !this.corner.isConnected) {
      this.corner = make("div", "tsnb-panel tsnb-notices");
      attribute(this.corner, "role", "status");
      this.page.body.append(this.corner);
    }
    this.corner.dataset.theme = this.theme || "light";
    return this.corner;
  }

  /** Switch them on or off; asks for the browser's own where it has not been asked. */
  turn(on) {
    this.on = on;
    if (on && this.own && this.own.permission === "default") Promise.resolve(this.own.requestPermission()).catch(() => {});
  }

  /** What its switch says. */
  get words() {
    const own = !this.own ? "this browser has no notifications" : this.own.permission === "granted" ? "and as a browser notification while the page is hidden" : this.own.permission === "denied" ? "the browser's own are not allowed here" : "and as the browser's own, if you allow that";
    return this.on ? `Notifies you on this page when a trial ends or fails, ${own}` : `Notify me on this page when a trial ends or fails, ${own}`;
  }

  close() {
    if (this.corner) this.corner.remove();
  }
}
