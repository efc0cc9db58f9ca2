// Controls that ask the kernel to do something to a trial. Each says what it does, asks once more before it ends what cannot
// be had again, and where it cannot act it is grey and says why.

import { attribute, button, grey, make, put } from "./dom.js";
import { icon, showIcon } from "./icons.js";

const WAITS_MS = { stop: 15000, interrupt: 3000, pause: 3000, resume: 3000, rerun: 5000 }; // a control that was used comes back after this
const DONE = {
  stop: "was asked to stop", interrupt: "was interrupted",
  pause: "pauses at its next batch", resume: "resumes", rerun: "starts again",
};

export class Act {
  /** `face`: what it shows (an element, or a word); `asks`: whether it asks before it acts. */
  constructor(op, word, face, send, { name = "", asks = false, className = "" } = {}) {
    Object.assign(this, { op, word, send, name, asks, face, usedMs: 0, why: "", asking: false });
    this.element = button(face, `${className} tsnb-${op}`, () => this.clicked());
    if (name) this.name_(`${word} ${name}`);
    taken(this.element, () => this.asking, () => this.calm());
  }

  clicked() {
    if (this.asks && !this.asking) {
      this.asking = true;
      this.element.focus(); // not every browser gives it to what was clicked
      this.element.replaceChildren(`${this.word}?`);
      this.element.classList.add("tsnb-asking");
      this.name_(`${this.word} ${this.name}: click again to confirm, Escape to cancel`);
      return;
    }
    this.calm();
    this.send({ op: this.op, name: this.name });
    Object.assign(this, { usedMs: Date.now(), why: "" });
    this.draw("");
  }

  /** It is for that trial from now on. */
  of(name) {
    this.calm();
    Object.assign(this, { name, usedMs: 0, why: "" });
  }

  /** Ask no more. */
  calm() {
    if (!this.asking) return;
    this.asking = false;
    this.element.classList.remove("tsnb-asking");
    this.element.replaceChildren(this.face);
    this.draw(this.reason);
  }

  refused(why) {
    Object.assign(this, { usedMs: 0, why });
    this.calm();
    this.draw(this.reason);
  }

  /** `reason`: why it cannot act now; empty: it can. */
  draw(reason) {
    this.reason = reason;
    const waits = Date.now() - this.usedMs < WAITS_MS[this.op] ? `${this.name} ${DONE[this.op]}` : "";
    const why = reason || waits;
    if (why) this.calm();
    grey(this.element, why);
    if (this.asking) return;
    if (why) this.name_(`${this.word} ${this.name}: not now, ${why}`);
    else this.name_(this.why ? `Could not ${this.word.toLowerCase()} ${this.name}: ${this.why}` : `${this.word} ${this.name}${this.risk || ""}`);
  }

  name_(text) {
    attribute(this.element, "title", text);
    attribute(this.element, "aria-label", text);
  }
}

/** A question that stands in a button stays until it is answered there, or its reader goes elsewhere or presses Escape. */
export function taken(element, isAsking, calm) {
  element.onblur = () => isAsking() && calm();
  element.onkeydown = (event) => {
    if (event.key !== "Escape" || !isAsking()) return;
    event.stopPropagation();
    calm();
  };
}

/** Pause, or while it is paused Resume: the icon is what a click does. */
export class PauseAct extends Act {
  constructor(send, { name = "" } = {}) {
    super("pause", "Pause", icon(), send, { name, className: "tsnb-act" });
    showIcon(this.face, "paused");
  }

  /** `paused`: whether it is paused now; `unrepeatable`: why its stream cannot give it later what it misses. */
  drawFor(paused, reason, unrepeatable = "") {
    this.risk = unrepeatable && `. ${paused ? "It fails if the batches that it missed have gone" : "After a long pause it fails when it resumes"}. The stream cannot repeat batches: ${unrepeatable}`;
    const op = paused ? "resume" : "pause";
    if (op !== this.op) {
      Object.assign(this, { op, word: paused ? "Resume" : "Pause", usedMs: 0, why: "" });
      showIcon(this.face, paused ? "streaming" : "paused");
    }
    this.draw(reason);
  }
}

/** Why nothing can be asked of the notebook's kernel now; empty: it can. */
export function unheard(store, state) {
  if (store.recorded) return "this is a recording";
  if (store.lost === "gone") return "this kernel is gone";
  return state === "stale" || store.lost ? "the notebook's kernel does not answer" : "";
}

/** Why nothing can be asked of a stream now; empty: it can. */
export function idleStream(store, state) {
  const why = unheard(store, state);
  if (why) return why;
  if (state === "absent") return "the stream is not served";
  if (state === "gone") return "the stream has ended";
  return state === "stopping" ? "the stream is stopping" : "";
}

/** Why nothing can be asked of a trial now; empty: it can. `toStop`: what also one can be asked that has not begun. */
export function idle(store, state, lane, toStop = false) {
  const why = state === "stopping" ? "" : idleStream(store, state);
  if (why) return why;
  const { here, end, pending } = store.lanes[lane];
  if (pending) return toStop ? "" : `it is ${pending}`;
  return here ? "" : end && end !== "left" ? `it has ended: ${end}` : "it has left";
}

export const square = () => make("span", "tsnb-square");

/** A line that says what was refused, empty as a rule. */
export function refusal() {
  const element = make("p", "tsnb-refusal");
  attribute(element, "role", "alert");
  return { element, say: (text) => put(element, text) };
}
