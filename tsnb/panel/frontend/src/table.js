// One row a trial. Columns have fixed widths, so nothing moves when numbers change or a trial joins. Rows are sorted by a
// click on a column's head, sifted by name, and those that have ended fold into a line a kind, below the rows of their sweep, where there are many.

import { attribute, button, make, put } from "./dom.js";
import { metricsOf } from "./lanes.js";
import { shortened } from "./learning.js";
import { arranged, groups, paramOf, sifted, telling } from "./order.js";
import { aboutMetric, decisive } from "./outcome.js";
import { COLUMNS, METRIC_COLUMNS, NARROW, PARAM_COLUMNS, Row, paramClass } from "./row.js";
import { menu } from "./lessons.js";
import { RowKeys } from "./rowkeys.js";
import { LIVE, OVER, allLeft, isLong, metric } from "./words.js";

const SIFTED_FROM = 9; // rows; with fewer there is nothing to look for
const LONG_EPOCH = 12; // letters of "12.34 of 100"
const WHOLE = 12; // rows that need no box of their own
const ORDER_MS = 5000; // as often as the order may change by itself
const METRICS_AT = 6;
const NAME_LETTERS = 17; // of a name, where it is not known how wide its column is
const MOST_LETTERS = 40; // on the widest page
const LONG_PARAM = 8; // letters of "0.000123"; a word like "candidate" is longer
const LONG_NAME = 130; // px: a longer one gets a wider column, where a page has room
const FEWEST_LETTERS = 9; // on the narrowest
const MARK = 30; // px beside a name
const METRICS_MS = 1000;
const SORTED = ["name", "state", "lag", "rate", "computing", "epochs", "metric 0", "metric 1"];

const isWord = (value) => typeof value === "string" && value.length > LONG_PARAM;

export class Table {
  constructor(send, choose, light, keep, open, change) {
    Object.assign(this, { send, choose, light, keep, open, changed: change, kept: { sort: null, open: [] }, filter: "", order: [], orderedMs: -Infinity });
    Object.assign(this, { params: [], paramHeads: [], groups: [], groupHeads: new Map() });
    this.rows = new Map();
    this.folds = new Map();
    this.head = COLUMNS.map(([label, name], k) => this.header(label, name, SORTED[k]));
    this.labels = this.head.map((cell) => cell.querySelector(".tsnb-sort-word"));
    this.head[this.head.length - 1].append(make("span", "tsnb-unseen", "actions"));
    this.table = make("table", "tsnb-table tsnb-trials", make("thead", "", make("tr", "", ...this.head)));
    this.table.setAttribute("aria-label", "Trials on this stream");
    this.keys = new RowKeys(this.table, (letter, element) => this.letter(letter, element));
    this.sieve = make("input", "tsnb-filter tsnb-sieve");
    Object.assign(this.sieve, { type: "search", placeholder: "filter: a name, or lr > 0.001" });
    attribute(this.sieve, "aria-label", "filter trials by name or parameters");
    this.sieve.oninput = () => this.change({}, (this.filter = this.sieve.value));
    this.bySweep = button("by sweep", "tsnb-choice", () => this.change({ ungrouped: !this.kept.ungrouped }));
    attribute(this.bySweep, "title", "Group the rows of each sweep below its name");
    this.columns = menu("columns", () => {}, { most: PARAM_COLUMNS, what: "columns" });
    this.counts = make("span", "tsnb-soft tsnb-counts");
    this.tools = make("div", "tsnb-row-tools", this.sieve, this.counts);
    this.empty = make("p", "tsnb-empty");
    this.key = key();
    this.allLeft = make("span", "tsnb-all-left");
    this.key.append(this.allLeft);
    this.scroll = make("div", "tsnb-scroll", this.table);
    this.element = make("div", "tsnb-rows", this.tools, this.scroll, this.empty, this.key);
    this.element.onpointerleave = () => light(null);
  }

  header(label, name, by) {
    const cell = make("th", name);
    cell.scope = "col";
    cell.by = by;
    if (!by) return cell;
    const sort = button(make("span", "tsnb-sort-word", label), "tsnb-sort", () => this.sortBy(by));
    cell.append(sort);
    return cell;
  }

  /** Take up what was chosen before the page was loaded. */
  restore(kept) {
    if (kept && typeof kept === "object") this.kept = { ...this.kept, ...kept };
  }

  change(change) {
    this.kept = { ...this.kept, ...change };
    this.keep(this.kept);
    this.orderedMs = -Infinity;
    if (this.store) this.draw(this.store, this.shownState);
  }

  /** Once: as it is best read (numbers from the largest), then the other way, then as they joined. */
  sortBy(by) {
    const { sort } = this.kept, first = !["name", "state", "metric 0"].includes(by) && !by.startsWith("param ");
    if (!sort || sort.by !== by) this.change({ sort: { by, down: first } });
    else this.change({ sort: sort.down === first ? { by, down: !first } : null });
  }

  draw(store, state) {
    const wide = this.head[0].clientWidth; // before anything is written: the page has been laid out
    Object.assign(this, { store, shownState: state, room: wide ? wide - MARK : 0 });
    const live = LIVE.has(state), metrics = columnsOf(metricsOf(store.lanes), this.kept.metrics, this.shownMetrics);
    for (let k = 0; k < METRIC_COLUMNS; k++) {
      put(this.labels[METRICS_AT + k], metrics[k] || "");
      this.labels[METRICS_AT + k].parentElement.hidden = !metrics[k];
      attribute(this.head[METRICS_AT + k], "title", metrics[k] ? aboutMetric(metrics[k], store.ways[metrics[k]]) : "");
    }
    this.element.classList.toggle("tsnb-second-decides", metrics[1] !== undefined && metrics[1] === decisive(store));
    put(this.labels[4], OVER.has(state) ? "where its time went" : "where its time goes");
    this.drawParams(store, metrics);
    for (const cell of [...this.head, ...this.paramHeads]) {
      const { sort } = this.kept, on = sort && cell.by && sort.by === cell.by;
      if (cell.by) attribute(cell, "aria-sort", on ? (sort.down ? "descending" : "ascending") : "none");
    }
    this.shorten(store);
    const fresh = this.due(store, state, metrics);
    if (fresh) store.renew();
    this.arrange(store, metrics, fresh);
    this.callThem(store);
    const { hidden = [] } = this.kept;
    let before = ""; // of several that wait for the same, the first says it
    for (const lane of this.order) {
      const { pending = "" } = store.lanes[lane] || {}, { element } = this.rows.get(lane);
      this.rows.get(lane).draw(store, state, metrics, fresh, hidden);
      element.classList.toggle("tsnb-waits-alike", Boolean(pending) && pending === before);
      before = pending;
    }
    this.keys.settle();
    const drawn = [...this.rows.values()];
    for (const item of this.key.children) if (SELDOM.has(item.spent)) item.hidden = !drawn.some((row) => row.spends(item.spent));
    this.element.classList.toggle("tsnb-long-epochs", this.order.some((lane) => this.rows.get(lane).epoch.textContent.length > LONG_EPOCH));
    const none = !store.lanes.some(Boolean);
    this.sieve.hidden = store.lanes.length < SIFTED_FROM;
    this.counts.hidden = this.sieve.hidden || this.groups.length > 0; // each sweep's line counts its own
    if (!this.counts.hidden) put(this.counts, counted(store, store.lanes.map((_, lane) => lane).filter((lane) => store.lanes[lane]), state === "gone"));
    this.bySweep.hidden = !this.canGroup;
    attribute(this.bySweep, "aria-pressed", !this.kept.ungrouped);
    this.element.classList.toggle("tsnb-many", store.lanes.length >= SIFTED_FROM);
    const tools = store.lanes.length >= SIFTED_FROM ? this.tools : this.key; // of few trials they get no line of their own
    if (this.bySweep.parentElement !== tools) tools.append(this.bySweep, this.columns.element);
    this.element.classList.toggle("tsnb-whole", this.order.length <= WHOLE);
    this.empty.hidden = !none;
    this.key.hidden = none;
    put(this.allLeft, live && !store.recorded ? allLeft(store.all, Date.now()) : "");
    const code = make("code", "", "for batch in tsnb.attach(): …");
    if (this.live !== live) this.empty.replaceChildren(...(live ? ["No trial is attached yet. In a trial's cell: ", code] : ["No trial yet."]));
    this.live = live;
  }

  /** Logged numbers change once a second, so that they can be read; at once where a trial has come or ended. */
  due(store, state, metrics) {
    const now = performance.now(), turn = [state, store.recorded, ...metrics, ...store.lanes.map((lane) => lane && [lane.here, lane.end, lane.run])].join();
    if (turn === this.turn && now - (this.freshMs || 0) < METRICS_MS) return false;
    Object.assign(this, { turn, freshMs: now });
    return true;
  }

  /** The numbers that charts show have their columns, until others are chosen; choosing other charts brings theirs back. */
  follow(metrics) {
    if (this.shownMetrics && metrics.join("\n") !== this.shownMetrics.join("\n") && this.kept.metrics) this.change({ metrics: null });
    this.shownMetrics = metrics;
  }

  /** A column for each chosen parameter, of those by which trials differ; the first ones, where nobody has chosen. */
  drawParams(store, metrics) {
    const all = telling(store.lanes, store.params), { columns } = this.kept;
    const params = (columns || all).filter((name) => all.includes(name)).slice(0, PARAM_COLUMNS), key = params.join("\n");
    const logged = metricsOf(store.lanes).filter((name) => !all.includes(name)), more = logged.length > METRIC_COLUMNS ? logged : [];
    this.columns.element.hidden = !all.length && !more.length;
    const kinds = [[all, params, PARAM_COLUMNS], [more, metrics.filter((name) => more.includes(name)), METRIC_COLUMNS]];
    const full = (name) => kinds.some(([names, chosen, most]) => names.includes(name) && chosen.length >= most);
    this.columns.draw([...all, ...more], kinds.flatMap(([, chosen]) => chosen), (names) => {
      const [own, numbers] = kinds.map(([names_]) => names_.filter((name) => names.includes(name)));
      this.change({ columns: own, ...(more.length && numbers.join() !== kinds[1][1].join() ? { metrics: numbers } : {}) });
    }, full);
    this.element.classList.toggle("tsnb-has-params", params.length > 0);
    if (key === this.params.join("\n")) return;
    this.params = params;
    for (const cell of this.paramHeads) cell.remove();
    this.paramHeads = params.map((name, k) => {
      const cell = this.header(name, paramClass(k), `param ${name}`);
      cell.title = name;
      return cell;
    });
    this.head[0].after(...this.paramHeads);
    for (const fold of [...this.folds.values(), ...this.groupHeads.values()]) this.widen(fold);
  }

  /** As many cells as rows have columns of parameters. */
  widen(fold) {
    for (const cell of fold.querySelectorAll(".tsnb-c-param")) cell.remove();
    fold.querySelector("tr").append(...this.params.map((_, k) => make("td", `tsnb-fold ${paramClass(k)}`)));
    return fold;
  }

  /** Names that begin alike are cut where they do, so that what differs can be read: in one way, for all of the panel. */
  shorten(store) {
    const names = [...new Set(store.lanes.filter(Boolean).map(({ name }) => name))], key = [this.room, this.params.length > 0, ...names].join("\n");
    if (key === this.called) return;
    this.called = key;
    this.pen ||= document.createElement("canvas").getContext("2d");
    this.pen.font = getComputedStyle(this.table).font; // fonts differ by a fifth: letters are not counted but measured
    const wide = (name) => this.pen.measureText(name).width, fit = (name) => wide(this.short[name]) <= this.room;
    this.element.classList.toggle("tsnb-long-names", names.some((name) => wide(name) > LONG_NAME));
    let most = this.room ? MOST_LETTERS : NAME_LETTERS;
    do this.short = shortened(names, most);
    while (this.room && most-- > FEWEST_LETTERS && !names.every(fit));
  }

  callThem(store) {
    const names = [...new Set(store.lanes.filter(Boolean).map(({ name }) => name))];
    this.brief = this.params.map((param) => names.some((name) => isLong(paramOf(store.params, name, param))));
    for (const row of this.rows.values()) {
      row.call(this.short[row.name]);
      row.tell(this.params.map((name, k) => [name, paramOf(store.params, row.name, name), this.brief[k]]));
    }
    const words = this.params.some((param) => names.some((name) => isWord(paramOf(store.params, name, param))));
    this.element.classList.toggle("tsnb-long-params", words);
  }

  /** Put rows and folds in their order. It does not change while somebody points at a row or works in it. */
  arrange(store, metrics, fresh) {
    const value = (lane, by) => this.value(store, lane, by, metrics), { shut = [], ungrouped } = this.kept;
    const decides = decisive(store), merit = (lane) => (decides === undefined ? NaN : store.ways[decides] * store.shown(lane, decides));
    const how = { ...this.kept, merit, filter: this.filter, params: store.params, kept: this.unfolded(store, metrics), sweeps: ungrouped ? {} : store.sweeps };
    const { rows: all, folds } = arranged(store.lanes, how, value), found = groups(store.lanes, all, store.sweeps);
    if (found.length && !this.canGroup) this.orderedMs = -Infinity; // what sweeps there are is known: a page that opens asks for it
    this.canGroup = found.length > 0;
    this.groups = ungrouped ? [] : found;
    const seen = this.groups.filter(({ name }) => !shut.includes(name)), grouped = this.groups.length > 0;
    const rows = grouped ? seen.flatMap((group) => group.rows) : all, lines = grouped ? folds.filter(({ sweep }) => seen.some(({ name }) => name === sweep)) : folds;
    const busy = [...this.table.tBodies].some((body) => body.matches(":hover") || body.contains(document.activeElement));
    const numbers = this.kept.sort && this.kept.sort.by.startsWith("metric"); // a column that is sorted stays so when its numbers change
    const same = rows.length === this.order.length && rows.every((lane) => this.rows.has(lane)) && lines.length === this.folds.size && lines.every(({ key }) => this.folds.has(key));
    const now = performance.now();
    const kinds = this.groups.map(({ name, rows: own }) => `${name}: ${[...own].sort().join()}`).join("; "); // a trial may have come into a sweep
    if (!same || kinds !== this.kinds || ((now - this.orderedMs > ORDER_MS || (numbers && fresh)) && !busy) || this.orderedMs < 0) {
      Object.assign(this, { orderedMs: now, kinds });
      const shown = new Set(rows);
      for (const [lane, row] of this.rows) if (!shown.has(lane)) this.drop(lane, row);
      for (const [key, fold] of this.folds) if (!lines.some((one) => one.key === key)) (fold.remove(), this.folds.delete(key));
      for (const lane of rows) if (!this.rows.has(lane)) this.add(lane, store.lanes[lane].name);
      const elements = (lanes) => lanes.map((lane) => this.rows.get(lane).element);
      const below = (name) => lines.filter(({ sweep }) => !grouped || sweep === name).map(({ key }) => this.endFold(key));
      const wanted = grouped ? this.groups.flatMap(({ name, rows: own }) => [this.groupHead(name), ...(shut.includes(name) ? [] : elements(own)), ...below(name)]) : [...elements(rows), ...below()];
      for (const [name, head] of this.groupHeads) if (!this.groups.some((group) => group.name === name)) (head.remove(), this.groupHeads.delete(name));
      wanted.forEach((element, k) => this.table.tBodies[k] !== element && this.table.insertBefore(element, this.table.tBodies[k] || null));
      this.order = rows;
    }
    for (const group of this.groups) this.drawGroup(store, group, shut.includes(group.name));
    this.drawFolds(store, lines);
  }

  /** The lanes that never fold: the best of all and of each sweep, and the trial that somebody reads or works in. */
  unfolded(store, metrics) {
    const name = decisive(store), bests = [...metrics.map((one) => store.best(one)), name === undefined ? -1 : store.bestOf(name)];
    for (const { lanes } of groups(store.lanes, [], store.sweeps)) bests.push(store.bestAmong(lanes, decisive(store, lanes)));
    const focused = [...this.rows].filter(([, { element }]) => element.contains(document.activeElement)).map(([lane]) => lane);
    return new Set([...bests, ...focused, store.lanes.findIndex((lane) => lane && lane.name === this.opened)]);
  }

  groupHead(name) {
    if (!this.groupHeads.has(name)) {
      const head = this.fold(() => {
        const { shut = [] } = this.kept;
        this.change({ shut: shut.includes(name) ? shut.filter((one) => one !== name) : [...shut, name] });
      });
      head.classList.add("tsnb-group");
      this.groupHeads.set(name, head);
    }
    return this.groupHeads.get(name);
  }

  /** The line above a sweep's rows: how many do what, and the best of them. */
  drawGroup(store, { name, lanes }, shut) {
    const head = this.groupHeads.get(name);
    if (!head) return;
    const line = head.querySelector("button"), told = counted(store, lanes, this.shownState === "gone"), by = decisive(store, lanes), best = by ? store.bestAmong(lanes, by, (k) => store.shown(k, by)) : -1;
    put(line, name ? `${(store.duels || []).some(({ duel }) => duel === name) ? "duel" : "sweep"} ${name}` : "no sweep");
    attribute(line, "aria-expanded", !shut);
    put(head.querySelector(".tsnb-soft"), told + (best < 0 ? "" : `; best ${by} ${metric(by, store.shown(best, by))}: ${this.short[store.lanes[best].name]}`));
  }

  drawFolds(store, folds) {
    for (const { key, word, lanes, open } of folds) {
      const fold = this.folds.get(key), line = fold.querySelector("button");
      put(line, `${lanes.length} ${word}`);
      attribute(line, "aria-expanded", open);
      const why = lanes.map((lane) => store.verdicts[store.lanes[lane].name]).filter(Boolean);
      fold.querySelector(".tsnb-soft").title = why.length ? lanes.map((lane) => `${store.lanes[lane].name}: ${store.verdicts[store.lanes[lane].name] || word}`).join("\n") : "";
      put(fold.querySelector(".tsnb-soft"), open ? "" : lanes.slice(0, 3).map((lane) => store.lanes[lane].name).join(", ") + (lanes.length > 3 ? ", …" : ""));
    }
  }

  endFold(key) {
    const act = () => {
      const { open } = this.kept;
      this.change({ open: open.includes(key) ? open.filter((one) => one !== key) : [...open, key] });
    };
    if (!this.folds.has(key)) this.folds.set(key, this.fold(act));
    return this.folds.get(key);
  }

  /** A line across the table with a button; `act`: what that does. */
  fold(act) {
    const line = button("", "tsnb-toggle", act), cell = make("td", "tsnb-fold", line, " ", make("span", "tsnb-soft")), rest = make("td", "tsnb-fold tsnb-c-rate");
    cell.colSpan = COLUMNS.length - NARROW; // a narrow table has no more columns, and must not get them by this
    rest.colSpan = NARROW;
    return this.widen(make("tbody", "tsnb-folded", make("tr", "", cell, rest)));
  }

  value(store, lane, by, metrics) {
    const row = store.lastRow(lane), here = store.lanes[lane].here;
    if (by === "name") return store.lanes[lane].name;
    if (by.startsWith("param ")) return paramOf(store.params, store.lanes[lane].name, by.slice(6));
    if (by === "state") return store.stateOf(lane).state;
    if (by.startsWith("metric")) return store.shown(lane, metrics[Number(by.slice(-1))] || "");
    if (by === "epochs") return row ? row.epochs : NaN;
    return here && row ? { lag: row.lag, rate: row.samplesPerS, computing: store.told(lane).computing }[by] : NaN;
  }

  /** The lanes whose curves are not to be seen: those that were hidden by a click on their mark, and those that the filter leaves out. */
  hiddenLanes() {
    const { hidden = [] } = this.kept, words = this.filter.trim(), out = new Set();
    const seen = words ? new Set(sifted(this.store.lanes, this.filter, this.store.params)) : null;
    this.store.lanes.forEach((lane, k) => lane && (hidden.includes(lane.name) || (seen && !seen.has(k))) && out.add(k));
    return out;
  }

  /** Leave out a trial's curve, or show it again. */
  hide(name) {
    const { hidden = [] } = this.kept;
    this.change({ hidden: hidden.includes(name) ? hidden.filter((one) => one !== name) : [...hidden, name] });
  }

  /** Do in a row what a letter stands for: pause, stop, clone, values, log, report, epochs. */
  letter(letter, element) {
    const row = [...this.rows.values()].find((one) => one.element === element);
    if (!row) return false;
    const press = (one) => (one.hidden || one.click(), true);
    const field = { c: "clone", v: "value", e: "epochs" }[letter];
    if (letter === "p") return press(row.pause.element);
    if (letter === "s") return row.stop.element.focus(), press(row.stop.element);
    if (letter === "l") return press(row.log);
    this.changed(letter === "r" ? "" : row.name, field);
    return true;
  }

  /** Put the focus back on that trial's name. */
  focus(name) {
    for (const row of this.rows.values()) if (row.name === name) row.open.focus({ preventScroll: true });
  }

  refused(name, what, why) {
    for (const row of this.rows.values()) if (row.name === name) row.refused(what, why);
  }

  add(lane, name) {
    const row = new Row(lane, name, this.send, this.choose, this.open, this.changed);
    row.element.onpointerenter = () => this.light(lane);
    row.element.onfocusin = () => this.light(lane);
    row.element.onfocusout = () => this.light(null);
    this.rows.set(lane, row);
    this.table.append(row.element);
  }

  drop(lane, row) {
    row.element.remove();
    this.rows.delete(lane);
  }
}

/** The numbers that have columns: those that were chosen, else those that charts show, and then the first ones. */
export function columnsOf(all, chosen, shown = []) {
  const names = chosen || [...new Set([...shown, ...all])];
  return names.filter((name) => all.includes(name)).slice(0, METRIC_COLUMNS);
}

/** How many of these trials do what: "5 running, 7 pruned". */
function counted(store, lanes, over) {
  const counts = new Map();
  for (const lane of lanes) {
    const word = store.lanes[lane].here ? (over ? "ended" : "running") : store.stateOf(lane).state === "gone" ? "left" : store.stateOf(lane).state;
    counts.set(word, (counts.get(word) || 0) + 1);
  }
  return [...counts].sort(([a], [b]) => (b === "running") - (a === "running")).map(([word, count]) => `${count} ${word}`).join(", ");
}

const SELDOM = new Set(["joining", "paused", "parked"]); // parts of a trial's time that most trials do not have

function key() {
  const parts = [["computing", "computing"], ["waiting", "waiting for data"], ["held", "waiting for slower trials"], ["joining", "waiting to join a pass"], ["between", "between epochs"], ["paused", "paused"], ["parked", "timed out"]];
  const item = ([spent, label]) => Object.assign(make("span", "", make("i", `tsnb-${spent}`), label), { spent }); // `part` is an element's own
  return make("div", "tsnb-key tsnb-soft", ...parts.map(item));
}
