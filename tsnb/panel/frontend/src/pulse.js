// Whether the kernel behind a panel still answers. While a stream runs its ticks tell that; once they have ended, and with each
// click, the page asks. Knows no DOM.

const QUIET_MS = 5000; // with nothing heard for so long the page asks
const AGAIN_MS = 15000; // and asks again after this
const ANSWER_MS = 8000; // a kernel that lives has answered by then, unless a cell keeps it busy

export class Pulse {
  /** `ask`: sends a question that the kernel answers at once; it throws where there is no kernel any more. */
  constructor(ask = () => {}, { clock = () => performance.now(), wall = () => Date.now() } = {}) {
    Object.assign(this, { ask, clock, wall, askedMs: null, unansweredMs: null, gone: false });
    this.heard();
  }

  /** A message has come: whatever was feared before is not so. */
  heard() {
    Object.assign(this, { heardMs: this.clock(), heardAtMs: this.wall(), askedMs: null, unansweredMs: null, gone: false });
  }

  /** The page has learnt that the kernel it was connected to is no more. */
  ended() {
    this.gone = true;
  }

  /** Called each second. */
  beat() {
    const now = this.clock();
    if (this.gone || now - this.heardMs < QUIET_MS || (this.askedMs !== null && now - this.askedMs < AGAIN_MS)) return;
    this.question();
  }

  /** Ask now: somebody has asked the kernel for something, and waits for that. */
  question() {
    if (this.gone) return;
    this.askedMs = this.clock();
    this.unansweredMs ??= this.askedMs;
    try {
      this.ask();
    } catch {
      this.ended();
    }
  }

  /** "gone": there is no such kernel any more; "silent": it does not answer; empty: it does, as far as is known. */
  get lost() {
    if (this.gone) return "gone";
    return this.unansweredMs !== null && this.clock() - this.unansweredMs > ANSWER_MS ? "silent" : "";
  }
}
