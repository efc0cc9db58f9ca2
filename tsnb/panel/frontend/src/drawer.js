// A trial's drawer: its parameters, live values and their changes, its time, log, artifacts and cost. Beside the rest where
// there is room, else in its place. What the stream does not say comes from the notebook, which knows its own trials only.

import { Act, PauseAct, idle, refusal, square, unheard } from "./acts.js";
import { coloured } from "./ansi.js";
import { attribute, button, grey, isGrey, make, put, style } from "./dom.js";
import { Further } from "./further.js";
import { icon, showIcon } from "./icons.js";
import { matching } from "./log.js";
import { shape } from "./shapes.js";
import { waitsFor } from "./store.js";
import { paint } from "./theme.js";
import { OVER, clock, consumerState, cores, count, leftWords, mebibytes, metric, milliseconds, ofAll, progress, spentWords } from "./words.js";

const BARS = 96;
const SLOW_MS = 1000; // its lists and bars are drawn once a second
const LINES = 200; // of a log's end
const WANTED_MS = 8000; // a field that the notebook has not told of by then is not there
const LEAST_HIGH = 320; // px that it has at least, where it begins lower
const CHANGES = 30; // of the newest

let drawers = 0;

export class Drawer {
  constructor(send, close, openLog, open) {
    Object.assign(this, { send, close, show: open, name: "", drawnMs: 0 });
    this.id = `tsnb-drawer-${++drawers}`;
    this.mark = make("span", "tsnb-mark");
    this.title = make("h3", "tsnb-drawer-name");
    this.title.tabIndex = -1;
    this.icon = icon();
    this.state = make("span");
    this.stop = new Act("stop", "Stop", square(), send, { asks: true, className: "tsnb-act" });
    this.pause = new PauseAct(send);
    this.interrupt = new Act("interrupt", "Interrupt", "Interrupt", send, { className: "tsnb-log-button" });
    const away = button("✕", "tsnb-act tsnb-away", () => close());
    attribute(away, "aria-label", "Close");
    const back = button("‹ back", "tsnb-log-button tsnb-back", () => close());
    const state = make("span", "tsnb-drawer-state", this.icon, this.state);
    this.head = make("div", "tsnb-drawer-head", back, this.mark, this.title, state, make("span", "tsnb-drawer-acts", this.interrupt.element, this.pause.element, this.stop.element, away));
    this.refusal = refusal();
    this.error = make("p", "tsnb-drawer-error");
    this.waits = make("p", "tsnb-drawer-waits");
    this.live = make("div", "tsnb-live");
    this.changes = make("ul", "tsnb-changes tsnb-soft");
    this.further = new Further((content) => this.ask(content), () => [...this.live.children].map((row) => row.changed()).filter(Boolean));
    this.params = list();
    this.bars = make("div", "tsnb-timeline", ...Array.from({ length: BARS }, () => make("i")));
    attribute(this.bars, "role", "img");
    this.marks = make("div", "tsnb-timeline-marks");
    this.ends = make("div", "tsnb-times-of", make("span"), make("span"));
    this.spent = make("p", "tsnb-soft tsnb-note");
    this.family = make("ul", "tsnb-family");
    this.numbers = list();
    this.cost = list();
    this.files = make("ul", "tsnb-files");
    this.figures = make("div", "tsnb-figures");
    this.pictures = new Map(); // their bytes by mark: what is there is not sent again
    this.query = Object.assign(make("input", "tsnb-filter"), { type: "search", placeholder: "search the log" });
    attribute(this.query, "aria-label", "search the log");
    this.query.oninput = () => this.drawLog(true);
    this.found = make("span", "tsnb-soft tsnb-found");
    this.lines = make("pre", "tsnb-lines tsnb-drawer-lines");
    this.lines.tabIndex = 0;
    attribute(this.lines, "role", "log");
    attribute(this.lines, "aria-live", "off");
    const all = button("open all", "tsnb-log-button", () => openLog(this.name));
    this.parts = {
      live: part("Live hyperparameters", "used from the next batch on", this.live, this.changes),
      further: part("Continue", "as two trials, for more epochs, or later", this.further.element),
      params: part("Parameters", "", this.params),
      time: part("Timeline", "", this.marks, this.bars, this.ends, this.spent),
      family: part("Lineage", "where each clone started", this.family),
      numbers: part("Last numbers", "", this.numbers),
      log: part("Log", "", make("div", "tsnb-log-tools", this.query, this.found, all), this.lines),
      files: part("Artifacts", "", this.figures, this.files),
      cost: part("Cost", "over the last seconds", this.cost),
    };
    const inner = this.inner = make("div", "tsnb-drawer-inner", this.head, this.refusal.element, this.error, this.waits, ...Object.values(this.parts));
    this.element = make("aside", "tsnb-drawer", inner);
    this.element.id = this.id;
    this.element.hidden = true;
    this.element.onkeydown = (event) => {
      if (event.key === "Escape") close(); // and not false, which would keep each other key from what has the focus
    };
    attribute(this.bars, "aria-label", "no time yet");
    this.open("");
  }

  /** Show that trial; empty: none. */
  open(name) {
    if (name !== this.name) {
      for (const act of [this.stop, this.interrupt, this.pause, this.further]) act.of(name);
      this.refusal.say("");
      this.query.value = "";
      this.lines.replaceChildren();
      this.live.replaceChildren();
      delete this.live.dataset.names; // else the fields of a trial that is opened again would be missing
      this.shownLog = undefined;
    }
    this.name = name;
    if (!name) [this.stop, this.interrupt, this.pause].forEach((act) => act.draw("no trial is open"));
    this.element.hidden = !name;
    this.drawnMs = 0;
  }

  /** Let a field have the focus as soon as it is there. */
  wants(field) {
    this.wanted = { field, untilMs: performance.now() + WANTED_MS };
  }

  reach() {
    const { field, untilMs } = this.wanted, found = { value: this.live.querySelector("input"), clone: this.further.called, epochs: this.further.epochs }[field];
    if (performance.now() > untilMs) this.wanted = null;
    if (!found || !this.facts) return;
    this.wanted = null;
    found.focus();
    found.select();
    found.scrollIntoView({ block: "nearest" });
  }

  /** Begin where the panel can be seen, which may be longer than the page, and take the focus. */
  inSight(panel) {
    const whole = panel.getBoundingClientRect();
    let top = 0;
    for (let box = panel.parentElement; box; box = box.parentElement) if (/auto|scroll/.test(getComputedStyle(box).overflowY)) top = Math.max(top, box.getBoundingClientRect().top);
    style(this.inner, "top", `${Math.round(Math.max(0, Math.min(top - whole.top, whole.height - LEAST_HIGH)))}px`);
    this.title.focus({ preventScroll: true });
    this.title.scrollIntoView({ block: "nearest" });
  }

  /** Ask for something anew: what was refused before is told no more. */
  ask(content) {
    this.refusal.say("");
    this.send(content);
  }

  refused(name, what, why) {
    if (name !== this.name) return;
    if (what === "stop") this.stop.refused(why);
    if (what === "interrupt") this.interrupt.refused(why);
    if (what === this.pause.op) this.pause.refused(why);
    if (["clone", "extend", "release", "rerun"].includes(what)) this.further.refused(what);
    this.refusal.say(what === "set" ? `Not set: ${why}` : `Could not ${{ release: "free its GPU memory", rerun: "run it again" }[what] || what}: ${why}`);
  }

  draw(store, state) {
    if (!this.name) return;
    const lane = store.lanes.findIndex((one) => one && one.name === this.name), facts = store.facts.get(this.name);
    attribute(this.element, "aria-label", `Trial ${this.name}`);
    put(this.title, this.name);
    if (lane >= 0 && this.lane !== lane) {
      this.lane = lane;
      this.mark.replaceChildren(shape(lane));
      style(this.element, "--tsnb-lane", paint(lane));
    }
    this.mark.hidden = lane < 0;
    const now = lane >= 0 ? store.stateOf(lane) : { state: "joining", forS: 0 };
    const words = consumerState(now.state, now.forS, !OVER.has(state) || state === "recording");
    put(this.state, words.label);
    showIcon(this.icon, now.state);
    this.state.parentElement.dataset.tone = words.tone;
    const why = lane < 0 ? "it is not on this stream" : idle(store, state, lane);
    this.stop.draw(lane < 0 ? why : idle(store, state, lane, true));
    this.interrupt.draw(why);
    this.pause.drawFor(now.state === "paused", why, store.stream.unrepeatable);
    this.interrupt.element.hidden = !store.can.interrupt;
    put(this.waits, lane >= 0 ? waitsFor(store.lanes[lane]) : "");
    put(this.error, (lane >= 0 && store.lanes[lane].error) || (facts && facts.verdict) || "");
    this.drawLog(false, store.log);
    if (facts === this.facts && performance.now() - this.drawnMs < SLOW_MS) {
      if (lane >= 0) this.drawNumbers(store, lane, state); // as new as its row has them
      return;
    }
    Object.assign(this, { facts, drawnMs: performance.now() });
    this.drawFacts(facts || {}, why);
    this.further.draw(facts, why, unheard(store, state), lane >= 0 && !store.lanes[lane].here && Boolean(store.lanes[lane].end));
    this.drawFamily(store, (facts && facts.lineage) || []);
    if (lane >= 0) this.drawTime(store, lane, facts, state);
    if (this.wanted) this.reach();
  }

  drawFacts({ live = [], bounds = {}, params = [], changes = [], artifacts = [], figures = [], missing, where }, why) {
    const { parts } = this;
    parts.live.hidden = !live.length;
    this.drawLive(live, why, bounds);
    const told = changes.slice(-CHANGES).reverse().map(({ name, value, before, epoch, batch }) => {
      const place = [Number.isFinite(epoch) ? `epoch ${epoch}` : "", Number.isFinite(batch) ? `batch ${count(batch)}` : ""].filter(Boolean).join(", ");
      return `${name} ${before ? `${before} → ` : ""}${value}${place ? ` from ${place} on` : ""}`;
    });
    items(this.changes, told);
    parts.params.hidden = !params.length && !missing;
    rows(this.params, missing ? [["", "Started by another notebook, which holds its parameters."]] : params);
    parts.files.hidden = !artifacts.length;
    items(this.files, artifacts.map(([name, bytes]) => `${name}  ${size(bytes)}`));
    this.files.title = where || "";
    this.drawFigures(figures);
  }

  /** Its newest pictures, the newest first; a click shows one as large as the drawer is wide, or small again. */
  drawFigures(figures) {
    const known = figures.map(([name, mark, address]) => [name, mark, address || this.pictures.get(mark) || ""]).filter(([, , address]) => /^data:image\//.test(address));
    this.pictures = new Map(known.map(([, mark, address]) => [mark, address]));
    const key = [this.name, ...this.pictures.keys()].join("\n");
    if (key === this.toldFigures) return;
    this.toldFigures = key;
    const large = new Set([...this.figures.children].filter((one) => one.getAttribute("aria-expanded") === "true").map((one) => one.title));
    this.figures.replaceChildren(...known.reverse().map(([name, , address]) => {
      const picture = Object.assign(make("img"), { src: address, alt: name });
      const one = button(picture, "tsnb-figure", () => attribute(one, "aria-expanded", one.getAttribute("aria-expanded") !== "true"));
      one.append(make("span", "tsnb-soft", name));
      one.title = name;
      attribute(one, "aria-expanded", large.has(name));
      return one;
    }));
  }

  /** Its family of clones, a parent above its clones: a click on a name opens that one's drawer. */
  drawFamily(store, family) {
    this.parts.family.hidden = !family.length;
    const told = family.map(([name, depth, place, state]) => {
      const lane = store.lanes.findIndex((one) => one && one.name === name), [first] = lane < 0 ? [] : store.lanes[lane].metrics;
      const number = first && Number.isFinite(store.value(lane, first)) ? `${first} ${metric(first, store.value(lane, first))}` : "";
      return { name, depth, lane, words: [place && `from ${place} on`, state, number].filter(Boolean).join(", ") };
    });
    const key = JSON.stringify([this.name, told]);
    if (key === this.toldFamily) return;
    this.toldFamily = key;
    this.family.replaceChildren(...told.map(({ name, depth, lane, words }) => {
      const open = button(name, "tsnb-open", () => this.show(name)), mark = lane < 0 ? make("span") : make("span", "tsnb-mark", shape(lane));
      const line = make("li", name === this.name ? "tsnb-this" : "", depth ? make("span", "tsnb-branch") : "", mark, open, " ", make("span", "tsnb-soft", words));
      if (name === this.name) attribute(line, "aria-current", "true");
      style(line, "--depth", String(Math.max(0, depth - 1)));
      if (lane >= 0) style(line, "--tsnb-lane", paint(lane));
      return line;
    }));
  }

  /** A field a value; what somebody types stays until it is sent. */
  drawLive(live, why, bounds) {
    const names = live.map(([name]) => name).join("\n");
    if (names !== this.live.dataset.names) {
      this.live.dataset.names = names;
      this.live.replaceChildren(...live.map(([name]) => this.field(name)));
    }
    live.forEach(([, value], k) => this.live.children[k].show(value, why, bounds[live[k][0]]));
  }

  field(name) {
    const input = make("input", "tsnb-filter tsnb-value-now"), row = make("form", "tsnb-live-row");
    const set = Object.assign(make("button", "tsnb-button tsnb-log-button tsnb-set", "Set"), { type: "submit" });
    attribute(input, "aria-label", `live hyperparameter ${name}`);
    let was, range, idle = "";
    const told = make("span", "tsnb-not-now tsnb-soft");
    attribute(told, "role", "status");
    const word = () => {
      const same = input.value.trim() === was || !input.value.trim(), wrong = same ? "" : amiss(name, was, input.value.trim());
      const why = idle || wrong || (same ? "type another value" : "");
      put(told, wrong);
      grey(set, why);
      put(set, same ? "Set" : `Set ${was} → ${input.value.trim()}`);
      attribute(set, "title", why ? `Set ${name}: not now, ${why}` : `Use it from the next batch on`);
    };
    const slider = Object.assign(make("input", "tsnb-slider tsnb-live-slider"), { type: "range", min: -SLIDES, max: SLIDES, step: 1 });
    slider.oninput = () => {
      input.value = range ? within(range, Number(slider.value), Number(was)) : slid(Number(was), Number(slider.value));
      attribute(slider, "aria-valuetext", input.value);
      input.oninput();
    };
    input.oninput = () => {
      word();
      this.further.word();
    };
    row.onsubmit = (event) => {
      event.preventDefault();
      if (isGrey(set)) return;
      this.ask({ op: "set", name: this.name, value: name, text: input.value.trim() });
      grey(set, true);
    };
    row.append(make("label", "", name), input, set, told, slider);
    row.changed = () => (input.value.trim() && input.value.trim() !== was ? [name, input.value.trim(), amiss(name, was, input.value.trim())] : null);
    row.show = (value, why, bounds) => {
      const changed = value !== was, mine = was !== undefined && input.value.trim() !== was;
      idle = why;
      was = value;
      if (changed && !(mine && document.activeElement === input)) input.value = value;
      range = bounds && bounds[0] <= Number(value) && Number(value) <= bounds[1] ? bounds : null;
      attribute(slider, "aria-label", range ? `${name}, from ${range[0]} to ${range[1]}` : `${name}, from a tenth to ten times its value`);
      slider.hidden = !(range || Number(value) > 0);
      slider.disabled = Boolean(why);
      if (changed || !mine) slider.value = range ? stepOf(range, Number(value)) : "0";
      input.readOnly = Boolean(why);
      if (changed || !isGrey(set) || why || set.title.includes("not now")) word();
    };
    return row;
  }

  drawNumbers(store, lane, state) {
    const { metrics } = store.lanes[lane], epochs = epochWords(store, lane, state);
    this.parts.numbers.hidden = !metrics.length && epochs === "–";
    rows(this.numbers, [["epoch", epochs], ...metrics.slice(0, 40).map((name) => [name, broken(store, lane, name) || metric(name, store.shown(lane, name)) + (store.best(name) === lane ? " ★" : "")])]);
  }

  drawTime(store, lane, facts, state) {
    const found = store.timesOf(lane, BARS), row = store.lastRow(lane), { machine } = store;
    this.parts.time.hidden = !found.bars.length;
    [...this.bars.children].forEach((bar, k) => {
      const one = found.bars[k];
      style(bar, "--at", one && one.here ? `${Math.round(100 * (1 - one.computing))}%` : "100%");
      bar.classList.toggle("tsnb-absent", !one || !one.here);
    });
    const share = found.share, words = share ? `filled: ${spentWords(share)}` : "";
    attribute(this.bars, "aria-label", words || "no time yet");
    put(this.spent, words);
    put(this.ends.children[0], clock(found.from));
    put(this.ends.children[1], `${OVER.has(state) || !store.lanes[lane].here ? "end" : "now"} ${clock(found.to)}`);
    this.drawMarks(store, found, facts);
    this.drawNumbers(store, lane, state);
    const pace = store.paceOf(lane);
    const process = machine && store.lanes[lane].here ? machine.trials[lane] : null, here = row && store.lanes[lane].here;
    const cost = here ? [["one batch takes", milliseconds(pace.stepMs)], ["alone it would reach", `${count(pace.alonePerS)} samples/s`]] : [];
    if (process) cost.push(["CPU", `${cores(process.cpu)} of ${count(process.cores)} cores`], ["memory", mebibytes(process.memoryMiB)]);
    this.parts.cost.hidden = !cost.length;
    rows(this.cost, cost);
  }

  drawMarks(store, { from, to }, facts) {
    const own = store.marks.filter(({ name }) => name === this.name).map(({ t, text }) => [t, text]);
    const set = ((facts && facts.changes) || []).map(({ time_s, name, value }) => [time_s - store.originS, `${name} ${value}`]);
    const shown = [...own, ...set].filter(([t]) => t >= from && t <= to + 1).slice(-40), span = to - from || 1;
    const key = shown.map(([t, text]) => `${((100 * (t - from)) / span).toFixed(1)} ${text}`).join("\n");
    if (key === this.marked) return;
    this.marked = key;
    this.marks.replaceChildren(...shown.map(([t, text]) => {
      const line = make("b");
      line.title = `${text}, at ${clock(t)}`;
      style(line, "left", `${Math.min(100, (100 * (t - from)) / span).toFixed(1)}%`);
      return line;
    }));
    attribute(this.marks, "aria-label", shown.map(([t, text]) => `${text} at ${clock(t)}`).join(", "));
    if (shown.length) attribute(this.marks, "role", "img");
  }

  drawLog(now, log = this.log) {
    this.log = log;
    if (!log) return;
    this.parts.log.hidden = !log.can && log.name !== this.name;
    if (log.name !== this.name) return;
    const query = this.query.value, key = `${log.epoch} ${log.at} ${log.open} ${query}`;
    if (!now && (key === this.shownLog || (query && performance.now() - (this.searchedMs || 0) < SLOW_MS))) return;
    Object.assign(this, { shownLog: key, searchedMs: performance.now() });
    const { lines, matches } = matching(log.text, query, LINES);
    put(this.found, query ? `${count(matches)} ${matches === 1 ? "line" : "lines"}` : "");
    const follows = this.lines.scrollHeight - this.lines.scrollTop - this.lines.clientHeight < 24;
    const text = log.missing ? log.nothing : lines.join("\n") || (query ? "" : log.nothing);
    this.lines.replaceChildren(...coloured(text).map((one) => one.text));
    attribute(this.lines, "aria-label", `Log of ${this.name}`);
    if (follows) this.lines.scrollTop = this.lines.scrollHeight;
  }
}

/** Why a text cannot be the next value of a live hyperparameter that is `was` now; empty: it may. */
export function amiss(name, was, text) {
  const number = (one) => one !== "" && Number.isFinite(Number(one.replace(/(?<=\d)_(?=\d)/g, "")));
  if (/^(True|False)$/.test(was)) return /^(True|False)$/.test(text) ? "" : `${name} takes True or False`;
  return number(was) && !number(text) ? `${name} takes a number` : "";
}

const SLIDES = 40; // steps of a slider to either side: ten times as much, or a tenth

/** A value moved by so many steps of a slider, to three digits; a whole number stays one. */
export function slid(value, steps) {
  const moved = value * 10 ** (steps / SLIDES);
  return String(steps === 0 ? value : Number.isInteger(value) && value >= 1 ? Math.max(1, Math.round(moved)) : Number(moved.toPrecision(3)));
}

const byTimes = ([low, high]) => low > 0 && high >= 10 * low; // steps that multiply rather than add

/** The value at a step of a slider between two bounds, to three digits; a whole number stays one. */
export function within([low, high], step, value) {
  const share = (step + SLIDES) / (2 * SLIDES), moved = byTimes([low, high]) ? low * (high / low) ** share : low + (high - low) * share;
  if (step === -SLIDES || step === SLIDES) return String(step < 0 ? low : high);
  return String(Number.isInteger(value) && [low, high].every(Number.isInteger) && high - low > 1 ? Math.round(moved) : Number(moved.toPrecision(3)));
}

/** The step at which a value between two bounds stands. */
export function stepOf([low, high], value) {
  const share = high === low ? 0.5 : byTimes([low, high]) ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  return String(Math.round(share * 2 * SLIDES) - SLIDES);
}

/** "became nan at batch 312"; empty: it is a number. */
const broken = (store, lane, name) => store.brokenOf(lane, name).slice(name.length + 1);

/** Epochs that it has taken, of how many, and what is left of them: as its row says. */
function epochWords(store, lane, state) {
  const { row, batches } = store.epochsOf(lane), { eta } = store.paceOf(lane), taken = progress(row, batches);
  if (!store.lanes[lane].here || OVER.has(state)) return taken;
  return [ofAll(taken, eta.epochs), leftWords(eta)].filter(Boolean).join(", ");
}

function part(title, more, ...children) {
  const heading = make("h4", "tsnb-part", title);
  if (more) heading.append(" ", make("span", "tsnb-soft", more));
  return make("section", "", heading, ...children);
}

const size = (bytes) => (bytes === null ? "folder" : bytes < 1e6 ? `${(bytes / 1000).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`);

const list = () => make("dl", "tsnb-pairs");

function rows(element, pairs) {
  const key = pairs.map(([name]) => name).join("\n");
  if (element.told === key) return pairs.forEach(([, value], k) => put(element.children[2 * k + 1], String(value)));
  element.told = key;
  element.replaceChildren(...pairs.flatMap(([name, value]) => [make("dt", "tsnb-soft", name), make("dd", "", String(value))]));
}

function items(element, texts) {
  const key = texts.join("\n");
  if (element.told === key) return;
  element.told = key;
  element.replaceChildren(...texts.map((text) => make("li", "", text)));
  element.hidden = !texts.length;
}
