// One view of a store: puts the parts together and draws them when there is news, at most once a frame.

import { Beside } from "./beside.js";
import { Charts } from "./charts.js";
import { Chooser } from "./chooser.js";
import { Details } from "./details.js";
import { Gantt } from "./gantt.js";
import { attribute, button, make, put } from "./dom.js";
import { Drawer } from "./drawer.js";
import { Duels } from "./duels.js";
import { Footer } from "./footer.js";
import { Header, shownState } from "./header.js";
import { keepPlainKeys } from "./keys.js";
import { Lessons } from "./lessons.js";
import { LogPane } from "./logpane.js";
import { Sentence } from "./sentence.js";
import { series } from "./series.js";
import { Strip } from "./strip.js";
import { Table } from "./table.js";
import { Told } from "./told.js";
import { onThemeChange, readTheme } from "./theme.js";
import { OVER, hourIn, spanFor } from "./words.js";

const PARAMS_MS = 5000;
let views = 0, flows = 0;

/** That the kernel was lost, where the sentence does not say so; and of when what is shown is. */
function lostWords({ lost, pulse }, state) {
  if (!lost || (lost === "silent" && state === "stale")) return "";
  const shown = `The panel shows its last state, of ${hourIn(0, pulse.heardAtMs)}.`;
  return lost === "gone" ? `This kernel is gone. ${shown} Run the cell again for a new panel.` : `The notebook's kernel does not answer: it is busy, restarted or gone. ${shown}`;
}
const SPANS = [[120, "2 min", "the last 2 minutes"], [600, "10 min", "the last 10 minutes"], [Infinity, "all", "the whole time"]];

/** What is drawn of one stream: its line at the top and its sentence, the strip of its flow, and large charts on request. */
class Flow {
  constructor(send, at, theme, toggled) {
    this.header = new Header(at ? (content) => send({ ...content, at }) : send);
    this.sentence = new Sentence();
    this.charts = new Charts(theme);
    this.details = new Details(this.charts.more.element);
    this.title = make("h3", "tsnb-section tsnb-strip-name");
    this.head = make("div", "tsnb-flow-head", this.header.element, this.sentence.element);
    this.charts.main.element.id = `tsnb-flow-${++flows}`;
    this.cells = new Strip(toggled, this.charts.main.element.id);
    this.strip = make("div", "tsnb-strip", this.title, this.cells.element, this.charts.main.element);
  }

  /** `alone`: whether there is no other; `large`: whether its large charts are open; `first`: of those that are shown. */
  draw(store, { spanS, details, large, alone, first, hidden, whole, calls }) {
    const state = shownState(store);
    this.head.hidden = this.strip.hidden = hidden;
    if (hidden) return this.details.hide();
    this.header.draw(store, state, first ? whole : null);
    this.sentence.draw(store, state, calls);
    this.title.hidden = alone;
    if (!alone) put(this.title, store.stream.name || "no stream yet");
    this.details.shown = details;
    this.details.draw(store);
    this.charts.main.element.hidden = !large;
    const shownS = spanFor(store.reel.ageS, spanS), found = large || details ? series(store.reel.withoutIdleEnd(), store.lanes, shownS) : undefined;
    this.cells.draw(store, shownS, large, calls, found);
    if (found) this.charts.draw(store, shownS, { over: OVER.has(state), main: large, details, machine: first, found });
  }
}

export class View {
  /** `kept`: what a reader chose before, and `keep` what takes it. */
  constructor(streams, send, { kept, keep, notices } = {}) {
    Object.assign(this, { streams, notices });
    const { store } = this;
    this.spanS = store.recorded ? Infinity : SPANS[0][0];
    this.send = send;
    this.root = make("section", "tsnb-panel");
    attribute(this.root, "aria-label", "tsnb panel");
    const choose = (name) => this.choose(name, send);
    const pointed = (lane) => (this.flows.forEach(({ charts }) => charts.light(lane)), this.lessons.light(lane));
    this.flows = [];
    this.table = new Table(send, choose, pointed, (rows) => this.keep({ rows }), (name) => this.show(name === this.drawer.name ? "" : name), (name, field) => this.change(name, field));

    this.beside = new Beside((name) => this.show(name));
    this.told = new Told();
    this.duels = new Duels(() => this.theme);
    this.drawer = new Drawer(send, () => this.show(""), (name) => choose(name), (name) => this.show(name));
    this.lessons = new Lessons(() => this.theme, (learning) => (this.keep({ learning }), this.news()), { pointed, wantParams: () => this.wantParams() });
    this.kept = kept && typeof kept === "object" ? kept : {};
    this.keep = (change) => keep && keep((this.kept = { ...this.kept, ...change }));
    this.lessons.restore(this.kept.learning);
    this.table.restore(this.kept.rows);
    this.log = new LogPane(store.log, choose, send);
    this.chooser = new Chooser((stream) => (this.keep({ stream }), this.news()));
    this.lost = make("p", "tsnb-lost");
    attribute(this.lost, "role", "alert");
    this.heads = make("div", "tsnb-heads");
    this.strips = make("div", "tsnb-strips");
    this.details = make("div", "tsnb-all-details");
    this.details.id = `tsnb-all-details-${++views}`;
    this.plan = new Gantt();
    this.footer = new Footer();
    this.footer.element.append(this.toggles(choose));
    this.table.element.append((this.spansBox = this.spans()));
    const parts = [this.lost, this.heads, this.duels.element, this.lessons.element, this.table.element, this.beside.element, this.strips, this.footer.element, this.plan.element, this.details, this.log.element, this.told.element];
    this.root.append(make("div", "tsnb-sides", make("div", "tsnb-main", make("div", "tsnb-inner", ...parts)), this.drawer.element));
    this.fit();
  }

  /** What the rows are of: the one stream, or all of them together. */
  get store() {
    return this.streams.whole;
  }

  /** As many flows as there are streams. */
  fit() {
    const wanted = this.streams.stores.length;
    while (this.flows.length < wanted) this.flows.push(new Flow(this.send, this.flows.length, () => this.theme, () => this.enlarge()));
    while (this.flows.length > wanted) {
      const { head, strip, details, charts } = this.flows.pop();
      [head, strip, details.element].forEach((element) => element.remove());
      charts.destroy();
    }
    this.flows.forEach(({ head, strip, details }) => {
      if (head.isConnected || head.parentElement) return;
      this.heads.append(head);
      this.strips.append(strip);
      this.details.append(details.element);
    });
    this.root.classList.toggle("tsnb-streams", wanted > 1);
    const { element } = this.chooser;
    if (wanted < 2) element.remove();
    else if (element.parentElement !== this.heads) this.heads.prepend(element);
  }

  /** Of several streams the one whose flow is shown: that which was chosen, or the first until it is there. */
  shownAt() {
    const { stream } = this.kept;
    return Math.max(0, this.streams.stores.findIndex((store) => store.stream.name && store.stream.name === stream));
  }

  /** Open the large charts of the flow, or close them. */
  enlarge() {
    this.keep({ flow: !this.kept.flow });
    this.news();
  }

  /** Open that trial's drawer; empty: close it, and go back to where one was. */
  show(name) {
    const before = this.drawer.name, { log } = this.store;
    this.drawer.open(name);
    this.root.classList.toggle("tsnb-opened", Boolean(name));
    log.follow(name);
    this.keep({ drawer: name });
    this.ask();
    this.send(log.wish);
    this.news();
    if (name) this.drawer.inSight(this.root);
    else if (before) this.table.focus(before);
  }

  /** Open that trial's drawer at a field ("value", "clone", "epochs"); without a name: make the stream's report. */
  change(name, field) {
    if (field === "hide") return this.table.hide(name);
    if (!name) return this.flows[this.shownAt()].header.report.click();
    this.drawer.wants(field);
    this.show(name);
  }

  /** Ask for what the notebook knows of the trial whose drawer is open: it forgets pages that do not. */
  ask() {
    const { name, pictures } = this.drawer, has = name === this.asked_trial && pictures.size ? { has: [...pictures.keys()] } : {};
    if (name || this.asked_trial) this.send({ op: "trial", name, ...has });
    this.asked_trial = this.drawer.name;
  }

  /** Show the log of that trial; null: close the pane; undefined: whichever it was, or the first there is. */
  choose(name, send) {
    const { log, lanes } = this.store;
    if (name === null) log.shown = false;
    else {
      log.choose(name ?? (log.name || (lanes.find((lane) => lane && lane.here) || { name: "" }).name));
      this.reveals = true;
    }
    send(log.wish);
    this.news();
  }

  /** Ask for the parameters of all trials, where there are others than before, and now and then. */
  wantParams() {
    const now = performance.now(), turn = this.store.lanes.map((lane) => lane && [lane.name, lane.run, lane.end]).join();
    if (turn === this.paramsOf && now - this.paramsMs < PARAMS_MS) return;
    Object.assign(this, { paramsOf: turn, paramsMs: now });
    try {
      this.send({ op: "params" });
    } catch (error) {
      console.debug("tsnb: no kernel behind this panel", error);
    }
  }

  toggles(choose) {
    this.more = button("details", "tsnb-toggle", () => {
      this.detailed = !this.detailed;
      this.news();
    });
    this.planned = button("plan", "tsnb-toggle", () => {
      this.keep({ plan: this.kept.plan === false });
      this.news();
    });
    this.notify = button("notify", "tsnb-toggle tsnb-notify", () => {
      this.notices.turn(!this.notices.on);
      this.keep({ notify: this.notices.on });
      this.news();
    });
    this.logs = button("logs", "tsnb-toggle", () => choose(this.store.log.shown ? null : undefined));
    attribute(this.more, "aria-controls", this.details.id);
    attribute(this.logs, "aria-controls", this.log.id);
    attribute(this.planned, "aria-controls", this.plan.element.id);
    return make("div", "tsnb-toggles", this.notify, this.planned, this.more, this.logs);
  }

  spans() {
    const buttons = SPANS.map(([seconds, label, words]) => {
      const one = button(label, "tsnb-span", () => {
        this.spanS = seconds;
        buttons.forEach((other) => attribute(other, "aria-pressed", other === one));
        this.news();
      });
      attribute(one, "aria-label", `Show ${words}`);
      attribute(one, "aria-pressed", seconds === this.spanS);
      return one;
    });
    return make("div", "tsnb-spans", make("span", "tsnb-soft", "last"), ...buttons);
  }

  /** Called once the root is on the page: only then are colours and widths known. */
  open() {
    this.theme = readTheme(this.root);
    this.stopTheme = onThemeChange(() => this.retheme());
    // the page puts the root in its place after it was handed over, and takes it out while it is scrolled far away
    this.place = new ResizeObserver(() => this.placed());
    this.place.observe(this.root);
    this.stopKeys = keepPlainKeys(this.root);
    if (typeof this.kept.drawer === "string" && this.kept.drawer) {
      this.drawer.open(this.kept.drawer);
      this.root.classList.add("tsnb-opened");
      this.store.log.follow(this.kept.drawer);
      try {
        this.ask();
        this.send(this.store.log.wish);
      } catch (error) {
        console.debug("tsnb: no kernel behind this panel", error);
      }
    }
    this.beat = setInterval(() => this.news(), 1000); // "no news for", "paused 0:41"
    this.draw();
  }

  /** Colours can be read only where the root is on the page. */
  placed() {
    const seen = this.root.clientWidth > 0;
    if (seen && !this.seen) this.retheme();
    this.seen = seen;
  }

  close() {
    clearInterval(this.beat);
    this.place.disconnect();
    this.stopTheme();
    this.stopKeys();
    this.flows.forEach(({ charts }) => charts.destroy());
    this.duels.close();
    this.lessons.destroy();
    cancelAnimationFrame(this.asked);
  }

  news() {
    this.asked ??= requestAnimationFrame(() => this.draw());
  }

  retheme() {
    this.theme = readTheme(this.root);
    this.lessons.news(true);
    this.news();
  }

  draw() {
    this.asked = undefined;
    const began = performance.now(), { store } = this, state = shownState(store);
    this.fit();
    const { stores } = this.streams, large = this.kept.flow === true;
    const at = this.shownAt(), common = { spanS: this.spanS, details: Boolean(this.detailed), large, alone: stores.length === 1, whole: store, calls: this.table.short || {} };
    this.flows.forEach((flow, k) => flow.draw(stores[k], { ...common, first: k === at, hidden: k !== at }));
    this.chooser.draw(stores, at);
    put(this.lost, lostWords(store, state));
    this.lost.hidden = !this.lost.textContent;
    this.told.draw(store);
    this.table.follow(this.lessons.chosen(store));
    this.table.opened = this.drawer.name;
    for (const part of [this.table, this.footer, this.log]) part.draw(store, state);
    if (this.reveals) this.log.element.scrollIntoView({ block: "nearest" }); // it opens below all else
    this.reveals = false;
    this.beside.draw(store.beside, store.lanes, store.originS);
    this.duels.draw(store);
    const shown = this.kept.plan !== false; // a plan is what its reader follows: its bars are there until they are closed
    this.plan.draw(store.plan, store.lanes, shown);
    this.planned.hidden = !this.plan.known;
    attribute(this.planned, "aria-expanded", shown);
    this.drawer.draw(store, state);
    this.lessons.calls = this.table.short;
    this.lessons.without(this.table.hiddenLanes());
    this.lessons.draw(store);
    for (const row of this.table.rows.values()) attribute(row.open, "aria-expanded", row.name === this.drawer.name);
    attribute(this.more, "aria-expanded", Boolean(this.detailed));
    attribute(this.logs, "aria-expanded", store.log.shown);
    this.notices.theme = this.root.dataset.theme;
    this.notify.hidden = store.recorded;
    attribute(this.notify, "aria-pressed", this.notices.on);
    attribute(this.notify, "title", this.notices.words);
    this.logs.hidden = !store.log.can && !store.log.name;
    if (store.log.can) this.wantParams();
    this.mark(state, performance.now() - began);
  }

  /** Facts for styles, for tests and for whoever inspects the page. */
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

  refused({ name, what, why, at = 0 }) {
    this.table.refused(name, what, why);
    this.drawer.refused(name, what, why);
    this.log.refused(name, what, why);
    if (!name && this.flows[at]) this.flows[at].header.refused(what, why);
  }
}
