// The reel: a stream's frames, all of the last ten minutes and every so many seconds before. The kernel's
// own history (tsnb/telemetry/shown/history.py) is thinned likewise. Knows no DOM.

const RECENT = 2400;
const OLDER = 800;
const FIRST_STEP_S = 4;
const BREAK_S = 3; // a longer silence is drawn as a gap, not as a line across it

export class Reel {
  constructor(frames = []) {
    this.frames = frames; // oldest first
    // how many of them are thinned: the kernel thins what a page is given as it opens
    let older = frames.length - 1;
    while (older > 0 && frames[older].t - frames[older - 1].t <= BREAK_S) older--;
    this.older = older = Math.max(0, older, frames.length - RECENT);
    this.stepS = older > 1 ? Math.max(FIRST_STEP_S, (frames[older - 1].t - frames[0].t) / (older - 1)) : FIRST_STEP_S;
  }

  add(frame) {
    this.frames.push(frame);
    while (this.frames.length - this.older > RECENT) this.age();
  }

  /** The oldest of the recent frames becomes one of the older ones, or goes. */
  age() {
    const { frames, older } = this, next = frames[older];
    const passedS = older ? next.t - frames[older - 1].t : Infinity;
    if (passedS >= 0 && passedS < (next.machine ? this.stepS : 1.5 * this.stepS)) frames.splice(older, 1);
    else this.older += 1;
    if (this.older <= OLDER) return;
    this.frames = frames.filter((_, k) => k >= this.older || k % 2 === 0);
    this.older = Math.ceil(this.older / 2);
    this.stepS *= 2;
  }

  get last() {
    return this.frames[this.frames.length - 1];
  }

  /** Seconds from the first frame that is kept to the last. */
  get ageS() {
    return this.frames.length ? this.last.t - this.frames[0].t : 0;
  }

  /**
   * The reel as far as anybody was attached: what is drawn once every trial has ended, so that it does not scroll away
   * while the stream is still served. Itself, where somebody is there or nobody ever was.
   */
  withoutIdleEnd() {
    const { frames, older } = this, here = (frame) => frame.rows.some((row) => row && Number.isFinite(row.lag)); // the last word of one that has ended is none
    let end = frames.length;
    while (end > 0 && !here(frames[end - 1])) end--;
    if (end === 0 || end === frames.length) return this;
    return Object.assign(new Reel(), this, { frames: frames.slice(0, end), older: Math.min(older, end - 1) });
  }

  /** The frames of the last `spanS` seconds and a second more. */
  since(spanS) {
    const { frames } = this, from = this.last ? this.last.t - spanS - 1 : 0;
    let low = 0, high = frames.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (frames[middle].t < from) low = middle + 1;
      else high = middle;
    }
    return frames.slice(low);
  }

  /** Whether nothing was heard between two frames that follow each other. */
  breaks(before, after) {
    const thinned = this.older > 0 && before.t < this.frames[this.older].t;
    return after.t - before.t > (thinned ? Math.max(BREAK_S, 3 * this.stepS) : BREAK_S);
  }
}
