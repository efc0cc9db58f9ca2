// The table of trials by the keyboard: one stop of Tab, arrows move in it, and a letter does in a row what its button does.

const LETTERS = new Set(["p", "s", "c", "v", "l", "r", "e"]);
const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** `act(letter, row)`: what a letter does in a row, given as its tbody; returns whether it did anything. */
export class RowKeys {
  constructor(table, act) {
    Object.assign(this, { table, act, current: null });
    table.addEventListener("focusin", ({ target }) => this.lines().flat().includes(target) && this.settle(target));
    table.addEventListener("keydown", (event) => this.key(event));
  }

  /** The controls of each line, from left to right: heads first. */
  lines() {
    return [...this.table.rows].map((line) => [...line.querySelectorAll("button")].filter((one) => !one.hidden)).filter((line) => line.length);
  }

  /** Let one control be the stop of Tab: that which has the focus, or had it, or the first trial's name. */
  settle(wanted = this.current) {
    const all = this.lines().flat();
    this.current = all.includes(wanted) ? wanted : all.find((one) => one.classList.contains("tsnb-open")) || all[0] || null;
    for (const one of this.table.querySelectorAll("button")) if (one.tabIndex !== (one === this.current ? 0 : -1)) one.tabIndex = one === this.current ? 0 : -1;
  }

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.tagName === "INPUT") return;
    const done = MOVES[event.key] ? this.move(event.target, MOVES[event.key]) : this.letter(event);
    if (done) (event.preventDefault(), event.stopPropagation());
  }

  letter(event) {
    const row = event.target.closest("tbody"), letter = event.key.toLowerCase();
    return Boolean(row) && LETTERS.has(letter) && !event.shiftKey && this.act(letter, row);
  }

  /** Go by so many lines and controls; down and up to the same place of the next line that can be seen. */
  move(from, [down, right]) {
    const lines = this.lines().map((line) => line.filter((one) => one.getClientRects().length)).filter((line) => line.length);
    const at = lines.findIndex((line) => line.includes(from));
    if (at < 0) return false;
    const place = lines[at].indexOf(from), line = lines[at + down];
    const to = right ? lines[at][place + right] : line && line[Math.min(place, line.length - 1)];
    if (to) to.focus();
    return true;
  }
}
