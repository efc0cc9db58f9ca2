// What the front end knows of the log that its pane shows. The messages are described in tsnb/panel/logs.py.
// Knows no DOM.

const MOST = 200000; // characters; the full log is on disk
const SAVED = 20000; // of them in a notebook saved with its widgets

export class Log {
  constructor() {
    Object.assign(this, { can: false, shown: false, tail: false, name: "", trials: [], epoch: 0 });
    this.forget();
  }

  /** Forget the text: another trial, or another run of it. */
  forget(run = "") {
    this.run = run;
    this.at = 0; // characters of the log until the end of `pieces`
    this.cut = false; // whether its beginning is not here
    this.missing = false;
    this.heard = false; // whether the kernel has said anything of it
    this.open = "";
    this.pieces = []; // oldest first
    this.first = 0; // the number of pieces[0], counted from the last `forget` on
    this.size = 0;
    this.epoch += 1; // tells views to start anew
  }

  /** Take over how the pane was: when the page opens, from the kernel or from the saved notebook. */
  load({ can, shown, name, trials, saved }) {
    this.can = Boolean(can);
    this.trials = trials || [];
    if (this.name) return; // this page has chosen already
    this.shown = Boolean(shown);
    this.name = name || "";
    if (saved) this.add(saved, (this.cut = true));
  }

  /** Show the log of that trial from now on. */
  choose(name) {
    this.shown = true;
    if (name !== this.name) this.forget();
    this.name = name;
  }

  /** Have the log of that trial for its drawer, whether the pane is open or not; empty: no more. */
  follow(name) {
    this.tail = Boolean(name);
    if (!name) return;
    if (name !== this.name) this.forget();
    this.name = name;
  }

  /** All text that is here. */
  get text() {
    return this.pieces.join("") + this.open;
  }

  /** What to ask the kernel for. */
  get wish() {
    if (this.tail && !this.shown) return { op: "log", name: this.name, run: this.run, at: this.at, tail: true };
    return this.shown ? { op: "log", name: this.name, run: this.run, at: this.at } : { op: "log off" };
  }

  /** Take in a message; false if a log must be asked for: there was none to choose until now. */
  take({ name, run, start, text, open, cut, trials, missing }) {
    if (trials) this.trials = trials;
    if (trials && this.shown && !this.name && trials.length) {
      this.choose(trials[trials.length - 1][0]);
      return false;
    }
    if (name === undefined || name !== this.name) return true;
    this.missing = Boolean(missing);
    this.heard = true;
    if (missing) return true;
    const at = run === this.run ? this.at : 0;
    if (start > at && !cut) return true; // for another page, which has more; ours is on its way
    if (start > at || run !== this.run) {
      this.forget(run);
      this.heard = true;
      this.at = start;
      this.cut = Boolean(cut);
    }
    this.add(this.at > start ? [...text].slice(this.at - start).join("") : text);
    this.open = open;
    return true;
  }

  add(text) {
    if (!text) return;
    this.pieces.push(text);
    this.at += characters(text);
    this.size += text.length;
    while (this.size > MOST && this.pieces.length > 1) {
      this.size -= this.pieces.shift().length;
      this.first += 1;
      this.cut = true;
    }
  }

  /** How the chosen trial is, and what it waits for, as far as it is known: "queued: it needs 2.1 GiB ...". */
  get state() {
    const found = this.trials.find(([name]) => name === this.name);
    return found ? found[1] : "";
  }

  /** What stands in place of lines that are not there; empty: they are. */
  get nothing() {
    if (this.missing) return "This notebook has no log of this trial, because another notebook started it.";
    return this.at || this.open ? "" : this.heard ? "Nothing printed yet." : this.can ? "Loading the log." : "This page has no log of this trial.";
  }

  /** What a saved notebook keeps of it. */
  snapshot() {
    const { can, shown, name, trials } = this;
    return { can: false, shown: shown && can, name, trials, saved: shown ? (this.pieces.join("") + this.open).slice(-SAVED) : "" };
  }
}

/** As many as Python counts: one beyond the 65,536 first (an emoji) is one, and two in JavaScript's length. */
function characters(text) {
  const pairs = text.match(/[\uD800-\uDBFF][\uDC00-\uDFFF]/g);
  return text.length - (pairs ? pairs.length : 0);
}

/** The last lines of a text, or the last that have all words of a query in them: {lines, matches}. Upper case is as lower. */
export function matching(text, query, most) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean), lines = text.split("\n");
  if (lines.length && !lines[lines.length - 1]) lines.pop();
  const found = words.length ? lines.filter((line) => words.every((word) => line.toLowerCase().includes(word))) : lines;
  return { lines: found.slice(-most), matches: found.length };
}
