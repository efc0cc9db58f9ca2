// One view of a store: puts the parts together and draws them when there is news, at most once a frame.

import { Charts } from "./charts.js";
import { attribute, make, put } from "./dom.js";
import { Footer, Header, Sentence, shownState } from "./header.js";
import { LogPane } from "./logpane.js";
import { Table } from "./table.js";
import { onThemeChange, readTheme } from "./theme.js";
import { spanFor } from "./words.js";

const SPANS = [[120, "2 min"], [600, "10 min"]];

export class View {
  constructor(store, send) {
    this.store = store;
    this.spanS = SPANS[0][0];
    this.root = make("section", "tsnb-panel");
    this.root.setAttribute("aria-label", "tsnb panel");
    this.header = new Header(send);
    this.sentence = new Sentence();
    const choose = (name) => this.choose(name, send);
    this.table = new Table(send, choose);
    this.log = new LogPane(store.log, choose, send);
    this.charts = new Charts(() => this.theme);
    this.footer = new Footer();
    this.footer.element.append(this.spans(this.toggle(choose)));
    const parts = [this.header, this.sentence, this.table].map((part) => part.element);
    this.root.append(make("div", "tsnb-inner", ...parts, key(), this.charts.element, this.footer.element, this.log.element));
  }

  /** Show the log of that trial; null: close the pane; undefined: whichever it was, or the first there is. */
  choose(name, send) {
    const { log, lanes } = this.store;
    if (name === null) log.shown = false;
    else log.choose(name ?? (log.name || (lanes.find((lane) => lane && lane.here) || { name: "" }).name));
    send(log.wish);
    this.news();
  }

  toggle(choose) {
    this.logs = make("button", "tsnb-span tsnb-logs", "logs");
    this.logs.type = "button";
    this.logs.setAttribute("aria-controls", this.log.id);
    this.logs.onclick = () => choose(this.store.log.shown ? null : undefined);
    return this.logs;
  }

  /** Called once the root is on the page: only then are colours and widths known. */
  open() {
    this.theme = readTheme(this.root);
    this.stopTheme = onThemeChange(() => this.retheme());
    this.beat = setInterval(() => this.news(), 1000); // "no news for", "parked 0:41"
    this.draw();
    // the page attaches the root after it was handed over; look again when it is really there
    requestAnimationFrame(() => this.retheme());
  }

  close() {
    clearInterval(this.beat);
    this.stopTheme();
    this.charts.destroy();
    cancelAnimationFrame(this.asked);
  }

  news() {
    this.asked ??= requestAnimationFrame(() => this.draw());
  }

  retheme() {
    this.theme = readTheme(this.root);
    this.charts.repaint();
    this.news();
  }

  draw() {
    this.asked = undefined;
    const began = performance.now(), { store } = this, state = shownState(store);
    for (const part of [this.header, this.sentence, this.table, this.footer, this.log]) part.draw(store, state);
    attribute(this.logs, "aria-expanded", store.log.shown);
    this.logs.hidden = !store.log.can && !store.log.name;
    if (this.root.isConnected) this.charts.draw(store, spanFor(store.ageS, this.spanS));
    this.mark(state, performance.now() - began);
  }

  /** Facts for tests and for whoever inspects the page. */
  mark(state, tookMs) {
    const { n, last, lanes, stream, frames, log } = this.store;
    Object.assign(this.root.dataset, {
      state,
      stream: stream.name,
      ticks: n,
      history: frames.length,
      consumers: lanes.filter((lane) => lane && lane.here).length,
      batches: last ? last.batches : 0,
      samplesPerS: last ? last.rows.reduce((sum, row) => sum + (row.samplesPerS || 0), 0).toFixed(1) : 0,
      log: log.shown ? log.name : "",
      logged: log.at,
      drawMs: tookMs.toFixed(2),
    });
  }

  spans(toggle) {
    const buttons = SPANS.map(([seconds, label]) => {
      const button = make("button", "tsnb-span", label);
      button.type = "button";
      button.setAttribute("aria-label", `Show the last ${label}`);
      button.setAttribute("aria-pressed", String(seconds === this.spanS));
      button.onclick = () => {
        this.spanS = seconds;
        buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
        this.news();
      };
      return button;
    });
    return make("div", "tsnb-spans", make("span", "tsnb-soft", "last"), ...buttons, toggle);
  }

  refused(name, why) {
    this.table.refused(name, why);
    this.log.refused(name, why);
    if (!name) {
      this.header.calm();
      put(this.header.stop, "Could not stop");
      this.header.stop.title = why;
    }
  }
}

function key() {
  const parts = [["computing", "computing"], ["waiting", "waiting for data"], ["held", "held back by the slowest"]];
  const item = ([name, label]) => make("span", "", make("i", `tsnb-${name}`), label);
  return make("div", "tsnb-key tsnb-soft", ...parts.map(item));
}
