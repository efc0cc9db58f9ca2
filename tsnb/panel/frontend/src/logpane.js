// The log pane: what the chosen trial prints, below everything else, so that nothing moves when it opens.

import { coloured } from "./ansi.js";
import { Act, square, unheard } from "./acts.js";
import { attribute, button, make, put, style } from "./dom.js";
import { paint } from "./theme.js";

const NEAR = 24; // px from the end within which the pane goes on following
const GOES_ON = new Set(["queued", "starting", "running", "paused"]);
const TONES = { running: "ok", paused: "soft", done: "soft", stopped: "soft", failed: "bad", crashed: "bad", queued: "soft", starting: "soft" };

let panes = 0;

export class LogPane {
  constructor(log, choose, send) {
    this.log = log;
    this.id = `tsnb-log-${++panes}`;
    this.swatch = make("span", "tsnb-swatch");
    this.select = make("select", "tsnb-select");
    this.select.setAttribute("aria-label", "Trial whose log is shown");
    this.select.onchange = () => choose(this.select.value);
    this.state = make("span", "tsnb-log-state");
    this.stop = new Act("stop", "Stop trial", "Stop", send, { asks: true, className: "tsnb-log-button" });
    this.stop.draw("no trial is selected");
    this.close = button("Close", "tsnb-log-button", () => choose(null));
    this.note = make("span", "tsnb-soft tsnb-log-note");
    this.tail = make("span");
    this.lines = make("pre", "tsnb-lines", this.tail);
    this.lines.tabIndex = 0; // the arrow keys scroll it
    this.lines.setAttribute("role", "log");
    this.lines.setAttribute("aria-live", "off"); // hundreds of lines a minute are not for reading aloud
    const title = make("div", "tsnb-log-title", make("span", "tsnb-soft", "log"), this.swatch, this.select, this.state, this.note, this.stop.element, this.close);
    this.element = make("section", "tsnb-log", title, this.lines);
    this.element.id = this.id;
    this.element.hidden = true;
    this.element.onkeydown = (event) => {
      if (event.key === "Escape") choose(null);
    };
  }

  /** The trial could not be stopped. */
  refused(name, what, why) {
    if (what === "stop" && this.stop.name === name) this.stop.refused(why);
  }

  draw(store, state) {
    const { log } = this;
    this.element.hidden = !log.shown;
    if (!log.shown) return;
    this.drawTitle(store, log.can ? unheard(store, state) : "");
    const follows = this.lines.scrollHeight - this.lines.scrollTop - this.lines.clientHeight < NEAR;
    this.drawLines();
    if (follows) this.lines.scrollTop = this.lines.scrollHeight;
  }

  drawTitle({ lanes }, lost) {
    const { log } = this, names = log.trials.map(([name]) => name);
    if (log.name && !names.includes(log.name)) names.push(log.name);
    if (names.join("\n") !== this.names) {
      this.names = names.join("\n");
      this.select.replaceChildren(...names.map((name) => make("option", "", name)));
    }
    this.select.value = log.name;
    this.select.disabled = names.length === 0;
    const lane = lanes.findIndex((each) => each && each.name === log.name);
    style(this.swatch, "background", lane < 0 ? "var(--tsnb-held)" : paint(lane));
    put(this.state, log.state);
    const word = log.state.replace(/:.*/s, "");
    this.state.dataset.tone = TONES[word] || "soft";
    if (this.stop.name !== log.name) this.stop.of(log.name);
    this.stop.draw(!log.name ? "no trial is selected" : lost ? lost : !log.can ? "this is a recording" : GOES_ON.has(word) ? "" : log.missing ? "another notebook started it" : log.state ? `it has ended: ${log.state}` : "its state is unknown yet");
    attribute(this.lines, "aria-label", `Log of ${log.name}`);
    put(this.note, this.stop.why ? `could not stop: ${this.stop.why}` : log.cut ? "showing the end; the full log is on disk" : "");
  }

  /** Add what is new, and take away what has gone: a text of 200,000 characters is not laid out anew at each tick. */
  drawLines() {
    const { log } = this;
    if (this.epoch !== log.epoch) {
      Object.assign(this, { epoch: log.epoch, first: log.first, next: log.first });
      this.lines.replaceChildren(this.tail);
    }
    for (; this.first < log.first && this.first < this.next; this.first++) this.lines.firstChild.remove();
    this.first = log.first;
    this.next = Math.max(this.next, log.first);
    for (; this.next < log.first + log.pieces.length; this.next++) {
      this.lines.insertBefore(make("span", "", ...parts(log.pieces[this.next - log.first])), this.tail);
    }
    const open = log.missing ? log.nothing : log.open || log.nothing;
    if (open !== this.shownOpen) this.tail.replaceChildren(...parts((this.shownOpen = open)));
    this.tail.classList.toggle("tsnb-soft", log.missing || (!log.open && !log.at));
  }
}

const parts = (text) => coloured(text).map((part) => (part.colour || part.bold ? dressed(part) : part.text));

function dressed({ text, colour: tone, bold }) {
  const element = make("span", "tsnb-dressed", text);
  if (tone) style(element, "--tsnb-tone", tone);
  if (bold) style(element, "font-weight", "600");
  return element;
}
