// The anywidget module. One set of stores a model, fed from its first message on; any number of views of it.

import "./panel.css";
import { Notices } from "./notices.js";
import { leave, picturesOf } from "./outputs.js";
import { Pulse } from "./pulse.js";
import { Streams } from "./streams.js";
import { View } from "./view.js";
import { LIVE } from "./words.js";

const ASK_MS = 15000; // the kernel forgets a page that does not ask for its log anew within a minute
const BEAT_MS = 1000;
const SAVE_MS = 10000; // how old the curves may be in a notebook saved with its widgets

// The picture beside the panel is for pages where the panel cannot be: while this one is alive, it is not shown.
const hiding = (mark) => {
  const pictures = picturesOf(mark);
  return pictures && `.jp-OutputArea-child:has(${pictures}), ${pictures} { display: none; }`;
};
const LEAVES_MS = 1000; // what the kernel has published is in its place by then

export default () => {
  const pulse = new Pulse();
  const store = new Streams(undefined, pulse);
  const views = new Set();
  const { log } = store.shared;
  const notices = new Notices();

  return {
    initialize({ model }) {
      pulse.ask = () => model.send({ op: "ping" });
      store.load(model.get("scene") || {}, model.get("history"), model.get("curves"));
      notices.begin(store);
      notices.on = Boolean((model.get("view") || {}).notify);
      let savedMs = performance.now();
      // what a notebook that is saved with its widgets opens with: only here, never sent to the kernel, which knows it better
      const keep = () => {
        savedMs = performance.now();
        const { scene, history, curves } = store.snapshot();
        model.set("scene", scene);
        model.set("history", history);
        model.set("curves", curves);
      };

      // ticks that came while this module loaded are lost: say which was the last, and get the rest if there is more
      const ask = () => {
        try {
          model.send(log.wish);
        } catch (error) {
          console.debug("tsnb: no kernel behind this panel", error);
        }
      };
      const saved = (model.get("scene") || {}).saved; // a notebook opened anew: if a kernel is there, it knows better
      if (!saved) keep(); // a page may open when all is over: no news will come
      const hello = () => model.send({ op: "hello", n: saved ? -1 : store.n });
      const placed = (content) => {
        const seen = (mark) => Boolean(picturesOf(mark) && document.querySelector(picturesOf(mark)));
        if (leave(model.widget_manager, content, seen) || !content.mark.startsWith("tsnb-report-")) return;
        const name = store.whole.stream.name;
        views.forEach((view) => view.refused({ name: "", what: "report", why: `This page cannot show a report. Run tsnb.report(${JSON.stringify(name)}) in a cell` }));
      };
      const hear = (content, buffers) => {
        pulse.heard();
        let decided = false; // a duel's last word may come when no tick does any more
        if (content.op === "all") store.load(content.scene, ...buffers);
        else if (content.op === "tick" && !store.tick(content, buffers && buffers[0])) model.send({ op: "hello", n: -1 });
        else if (content.op === "log") log.take(content) || ask();
        else if (content.op === "params") decided = store.know(content);
        else if (content.op === "trial") store.shared.facts.set(content.name, content);
        else if (content.op === "output") setTimeout(() => placed(content), LEAVES_MS);
        else if (content.op === "refused") views.forEach((view) => view.refused(content));
        if (content.op === "all") notices.begin(store);
        else if (content.op === "tick") notices.news(store);
        views.forEach((view) => view.news());
        const ended = content.state && !LIVE.has(content.state);
        if (content.op === "all" || ended || decided || performance.now() - savedMs > SAVE_MS) keep();
      };
      model.on("msg:custom", hear);
      // a restarted kernel: the page's connection to the former one is cut. If it was not so, the answer says it
      const cut = () => (pulse.question(), pulse.ended(), views.forEach((view) => view.news()));
      model.on("comm_live_update", cut);
      const beating = setInterval(() => store.whole.recorded || pulse.beat(), BEAT_MS);
      try {
        hello();
      } catch (error) {
        console.debug("tsnb: no kernel behind this panel", error);
      }
      if (log.shown) ask();
      const asking = setInterval(() => ((log.shown || log.tail) && ask(), views.forEach((view) => view.ask())), ASK_MS);
      return () => {
        clearInterval(asking);
        clearInterval(beating);
        notices.close();
        model.off("msg:custom", hear);
        model.off("comm_live_update", cut);
      };
    },

    render({ model, el }) {
      // not by save_changes(), which would send along all that was set, the history too
      const keep = (chosen) => {
        model.set("view", chosen);
        try {
          model.send({ op: "view", view: chosen });
        } catch (error) {
          console.debug("tsnb: no kernel behind this panel", error);
        }
      };
      // whoever clicks waits for an answer, and is told where there is nobody to give one
      const send = (content) => {
        try {
          model.send(content);
        } catch {
          pulse.ended();
        }
        if (!store.whole.recorded && performance.now() - pulse.heardMs > BEAT_MS) pulse.question();
      };
      const view = new View(store, send, { kept: model.get("view"), keep, notices });
      const still = document.createElement("style");
      document.head.append(still);
      const hide = () => (still.textContent = hiding(model.get("still")));
      model.on("change:still", hide);
      hide();
      el.append(view.root);
      view.open();
      views.add(view);
      return () => {
        views.delete(view);
        view.close();
        model.off("change:still", hide);
        still.remove();
      };
    },
  };
};
