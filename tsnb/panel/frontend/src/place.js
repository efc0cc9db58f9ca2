// Where a trial is in the stream: buffer and lag in one picture, the same scale in all rows.
//
//     ─ ─ ─ ┃■ ■ ■ ┄ ┄     taken, the trial, ready for it, not prepared yet
//
// The scale is the batches that are kept, from the slowest trial's place on. So the column is a race track: how far a
// needle is from the foremost is its lag, how many boxes are to its right its buffer.

import { attribute, make, style } from "./dom.js";
import { count } from "./words.js";

const MOST_BOXES = 16; // a wider window is drawn as one bar

export class Place {
  constructor() {
    this.boxes = make("div", "tsnb-boxes");
    this.needle = make("b", "tsnb-needle");
    this.track = make("div", "tsnb-track", this.boxes, this.needle);
    this.words = make("div", "tsnb-below");
    this.element = make("div", "tsnb-place", this.track, this.words);
    attribute(this.element, "role", "img");
  }

  /** `row`: {fill, lag} or null; `head`: batches prepared from the slowest trial's place on; `size`: those that are kept;
   * `stream`: which of several it is on. */
  draw(row, head, size, name, stream = "") {
    const said = placeWords(row, stream);
    if (this.words.textContent !== said) this.words.textContent = said;
    this.element.title = row ? `${name}: ${count(row.lag)} batches behind the front, ${count(row.fill)} of ${size} ready for it${stream ? `, on ${stream}` : ""}${size && row.lag > size ? `; more than the window of ${size}, as the stream keeps what a trial misses while it validates, saves or compiles` : ""}` : "";
    attribute(this.element, "aria-label", row ? said : "no place in the stream");
    this.element.classList.toggle("tsnb-nowhere", !row);
    const { at, ready, later } = parts(row, head, size);
    const boxes = size > MOST_BOXES || !size ? 1 : size;
    if (this.boxes.children.length !== boxes) this.boxes.replaceChildren(...Array.from({ length: boxes }, () => make("i")));
    if (boxes === 1) {
      const [box] = this.boxes.children, [a, b] = [at, at + ready].map((part) => `${((100 * part) / (size || 1)).toFixed(1)}%`);
      attribute(box, "class", "tsnb-one-bar");
      style(box, "--tsnb-from", a);
      style(box, "--tsnb-to", b);
    } else {
      [...this.boxes.children].forEach((box, k) => attribute(box, "class", k < at ? "tsnb-taken" : k < at + ready ? "tsnb-ready" : k >= size - later ? "tsnb-later" : "tsnb-taken"));
    }
    style(this.needle, "left", `${((100 * at) / (size || 1)).toFixed(1)}%`);
  }
}

/** How many boxes lie left of the needle, how many are ready for it, and how many are not prepared yet. */
export function parts(row, head, size) {
  if (!row) return { at: 0, ready: 0, later: size };
  const prepared = Math.min(size, Math.max(head, row.fill)), ready = Math.min(size, row.fill);
  return { at: Math.max(0, prepared - ready), ready, later: size - prepared };
}

const FAR = 100; // batches: so far behind, both numbers would not fit, and what it lacks lies ready

/** "8 behind · 8 ready", "141 behind"; of several streams: "val: 8 behind · 8 ready" */
export function placeWords(row, stream = "") {
  if (!row) return "";
  if (row.lag >= FAR && row.fill >= row.lag) return `${stream ? `${stream}: ` : ""}${count(row.lag)} behind`;
  return `${stream ? `${stream}: ` : ""}${row.lag > 0 ? `${count(row.lag)} behind` : "at the front"} · ${count(row.fill)} ready`;
}
