// How a trial goes on: as two, its clone with the values that stand in the drawer's fields; or, once it is done, for more epochs.
// And how it stands still without its GPU memory, or runs again from the top.

import { attribute, grey, isGrey, make, put } from "./dom.js";

const WAITS_MS = { clone: 5000, extend: 3000, release: 3000, rerun: 5000 }; // a control that was used comes back after this
const WORDS = { clone: ["Clone", "Clone"], extend: ["More epochs", "Continue"], release: ["Memory", "Pause, memory free"], rerun: ["From the top", "Run again"] };
const ELSEWHERE = "another notebook started it. Do that there";
const LASTS = new Set(["extend", "rerun"]); // what a trial that has ended can do, or never can
const MORE = { Clone: "both continue from its next batch", [WORDS.release[1]]: "the state in tsnb.checkpoint moves to host memory, and back before it resumes", "Run again": "the same code and variables, under the same name; this run stays in the results" };

export class Further {
  /** `changed`: gives what the fields of live values say that is not so yet, [[name, text, why that will not do], ...]. */
  constructor(send, changed) {
    Object.assign(this, { send, changed, name: "", usedMs: {}, why: {}, never: new Set(), asked: new Set() });
    this.called = field("text", "name of the clone");
    this.called.placeholder = "new name";
    this.clone = this.form("clone", this.called);
    this.epochs = Object.assign(field("number", "additional epochs"), { min: 1, step: 1, value: 1 });
    this.extend = this.form("extend", this.epochs);
    this.epochs.oninput = () => this.word();
    this.release = this.form("release", make("span"));
    this.rerun = this.form("rerun", make("span"));
    this.forms = [this.clone, this.extend, this.release, this.rerun];
    this.element = make("div", "", this.clone.row, this.extend.row, this.rerun.row, this.release.row);
  }

  form(op, input) {
    const [label, word] = WORDS[op], go = Object.assign(make("button", `tsnb-button tsnb-log-button tsnb-${op}`, word), { type: "submit" });
    const told = make("span", "tsnb-not-now tsnb-soft"), row = make("form", "tsnb-live-row", make("label", "", label), input, go, told);
    attribute(told, "role", "status");
    row.addEventListener("focusin", () => (this.asked.add(op), this.word())); // a reason that was shown stays: nothing moves under the pointer
    const tell = (always) => {
      if (!isGrey(go)) this.asked.delete(op);
      put(told, isGrey(go) && (always || (this.asked.has(op) && this.why[op])) ? go.title : "");
    };
    row.onsubmit = (event) => {
      event.preventDefault();
      this.asked.add(op);
      tell(false);
      if (isGrey(go)) return;
      this.usedMs[op] = Date.now();
      this.send({ op, name: this.name, ...this.said(op) });
      this.word();
    };
    return { op, row, go, told, tell };
  }

  said(op) {
    if (op === "clone") return { as: this.called.value.trim(), changes: this.changed().map(([name, text]) => [name, text]) };
    return op === "extend" ? { epochs: Math.round(Number(this.epochs.value)) } : {};
  }

  /** They are for that trial from now on. */
  of(name) {
    Object.assign(this, { name, usedMs: {}, asked: new Set() });
    for (const { told } of this.forms) put(told, "");
    this.called.value = "";
    this.epochs.value = 1;
  }

  refused(op) {
    this.usedMs[op] = 0;
    this.word();
  }

  /**
   * `facts`: what the notebook knows of the trial; `idle`: why nothing can be asked of it now; `gone`: why nothing can be asked of
   * the notebook; `over`: whether it has ended, and what it cannot do it never can.
   */
  draw(facts, idle, gone, over) {
    const known = facts && !facts.missing && facts.cannot;
    const why = (op) => (known ? whole(this.name, known[op]) : ELSEWHERE);
    this.why = { clone: idle || why("clone"), extend: gone || why("extend"), release: idle || why("release"), rerun: gone || why("rerun") };
    this.never = new Set(over && known && !gone ? [...LASTS].filter((op) => known[op]) : []);
    this.word();
  }

  word() {
    const changed = this.changed(), changes = changed.map(([name, text]) => `${name} ${text}`).join(", "), more = Number(this.epochs.value);
    const waits = (op, said) => (Date.now() - (this.usedMs[op] || 0) < WAITS_MS[op] ? said : "");
    const wrong = Number.isInteger(more) && more >= 1 ? "" : "enter a whole number of epochs, 1 or more", amiss = changed.map(([, , why]) => why).find(Boolean) || "";
    tell(this.clone.go, changes ? `Clone with ${changes}` : "Clone", this.why.clone || amiss || waits("clone", "it is being cloned"), `Clone ${this.name}`);
    tell(this.release.go, WORDS.release[1], this.why.release || waits("release", "it pauses at its next batch"), `Pause ${this.name} with its GPU memory free`);
    tell(this.rerun.go, WORDS.rerun[1], this.why.rerun || waits("rerun", "it starts again"), `Run ${this.name} again`, this.never.has("rerun"));
    tell(this.extend.go, wrong ? "Continue" : `Continue for ${more}`, this.why.extend || wrong || waits("extend", "it continues"), `Extend ${this.name}`, this.never.has("extend"));
    for (const { op, tell } of this.forms) tell(this.never.has(op) || (op === "clone" && !this.why.clone && amiss !== ""));
  }
}

/** A reason as a clause: some only say what the trial "is", "was" or "has". */
const whole = (name, why) => (/^(is|was|has|ran|trained|counts) /.test(why) ? `${name} ${why}` : why);

function field(type, label) {
  const input = Object.assign(make("input", "tsnb-filter tsnb-value-now"), { type });
  attribute(input, "aria-label", label);
  return input;
}

function tell(go, text, why, what, never) {
  put(go, text);
  grey(go, why);
  attribute(go, "title", why ? `${what}: ${never ? "" : "not now, "}${why}` : MORE[text] ? `${what}: ${MORE[text]}` : `${what}: ${text}`);
}
