// How a trial goes on: as two, its clone with the values that stand in the drawer's fields; or, once it is done, for more epochs.
// And how it stands still without its GPU memory, or runs again from the top.

import { attribute, grey, isGrey, make, put } from "./dom.js";

const WAITS_MS = { clone: 5000, extend: 3000, release: 3000, rerun: 5000 }; // a control that was used comes back after this
const WORDS = { clone: ["Clone", "Clone"], extend: ["More epochs", "Continue"], release: ["Memory", "Pause, memory free"], rerun: ["From the top", "Run again"] };
const ELSEWHERE = "another notebook started it. Do that there";
const MORE = { Clone: "both continue from its next batch", [WORDS.release[1]]: "the state in tsnb.checkpoint moves to host memory, and back before it resumes", "Run again": "the same code and variables, under the same name; this run stays in the results" };

export class Further {
  /** `changed`: gives what the fields of live values say that is not so yet, [[name, text], ...]. */
  constructor(send, changed) {
    Object.assign(this, { send, changed, name: "", usedMs: {}, why: {} });
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
    row.onsubmit = (event) => {
      event.preventDefault();
      put(told, isGrey(go) ? go.title : "");
      if (isGrey(go)) return;
      this.usedMs[op] = Date.now();
      this.send({ op, name: this.name, ...this.said(op) });
      this.word();
    };
    return { row, go, told };
  }

  said(op) {
    if (op === "clone") return { as: this.called.value.trim(), changes: this.changed() };
    return op === "extend" ? { epochs: Math.round(Number(this.epochs.value)) } : {};
  }

  /** They are for that trial from now on. */
  of(name) {
    Object.assign(this, { name, usedMs: {} });
    for (const { told } of this.forms) put(told, "");
    this.called.value = "";
    this.epochs.value = 1;
  }

  refused(op) {
    this.usedMs[op] = 0;
    this.word();
  }

  /** `facts`: what the notebook knows of the trial; `idle`: why nothing can be asked of it now; `gone`: why nothing can be asked of the notebook. */
  draw(facts, idle, gone) {
    const known = facts && !facts.missing && facts.cannot;
    const why = (op) => (known ? whole(this.name, known[op]) : ELSEWHERE);
    this.why = { clone: idle || why("clone"), extend: gone || why("extend"), release: idle || why("release"), rerun: gone || why("rerun") };
    this.word();
  }

  word() {
    const changes = this.changed().map(([name, text]) => `${name} ${text}`).join(", "), more = Number(this.epochs.value);
    const waits = (op, said) => (Date.now() - (this.usedMs[op] || 0) < WAITS_MS[op] ? said : "");
    const wrong = Number.isInteger(more) && more >= 1 ? "" : "enter a whole number of epochs, 1 or more";
    tell(this.clone.go, changes ? `Clone with ${changes}` : "Clone", this.why.clone || waits("clone", "it is being cloned"), `Clone ${this.name}`);
    tell(this.release.go, WORDS.release[1], this.why.release || waits("release", "it pauses at its next batch"), `Pause ${this.name} with its GPU memory free`);
    tell(this.rerun.go, WORDS.rerun[1], this.why.rerun || waits("rerun", "it starts again"), `Run ${this.name} again`);
    tell(this.extend.go, wrong ? "Continue" : `Continue for ${more}`, this.why.extend || wrong || waits("extend", "it continues"), `Extend ${this.name}`);
    for (const { go, told } of this.forms) if (!isGrey(go)) put(told, "");
  }
}

/** A reason as a clause: some only say what the trial "is", "was" or "has". */
const whole = (name, why) => (/^(is|was|has|ran|trained|counts) /.test(why) ? `${name} ${why}` : why);

function field(type, label) {
  const input = Object.assign(make("input", "tsnb-filter tsnb-value-now"), { type });
  attribute(input, "aria-label", label);
  return input;
}

function tell(go, text, why, what) {
  put(go, text);
  grey(go, why);
  attribute(go, "title", why ? `${what}: not now, ${why}` : MORE[text] ? `${what}: ${MORE[text]}` : `${what}: ${text}`);
}
