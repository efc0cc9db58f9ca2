// The line at the bottom: what the machine does, and the shared memory that holds the batches.

import { make, pair, put } from "./dom.js";
import { LIVE, cores, count, mebibytes, percent, usedOf } from "./words.js";

export class Footer {
  constructor() {
    this.cpu = pair("CPU", "tsnb-cpu");
    this.cpuParts = make("span", "tsnb-soft");
    this.cpu.box.append(" ", this.cpuParts);
    this.memory = pair("memory");
    this.arena = pair("shared memory");
    this.slots = make("span", "tsnb-of-slots");
    this.arena.box.append(this.slots);
    this.cache = pair("cache", "tsnb-cache");
    this.gpu = pair("GPU");
    this.element = make("footer", "tsnb-footer", this.cpu.box, this.memory.box, this.arena.box, this.cache.box, this.gpu.box);
    this.cpu.box.title = "Busy cores on this machine: all processes, the loader with its workers, and the trials";
    this.memory.box.title = "Memory in use on this machine or in this container, by all processes";
    this.arena.box.title = "Shared memory for the loader's batches, and how many of its buffers are in use";
    this.cache.box.title = "Prepared samples in memory: their number, their size, and how often one was served from there";
  }

  draw(store, state) {
    const { stream, last, machine } = store, known = LIVE.has(state) || state === "recording" || state === "stale";
    const now = known ? machine : null;
    put(this.cpu.value, now ? `${cores(now.cpu)} of ${now.cores} cores` : "–");
    put(this.cpuParts, now ? shares(now) : "");
    put(this.memory.value, now ? usedOf(now.usedMiB, now.totalMiB) : "–");
    put(this.arena.value, last && known ? mebibytes(last.touchedMiB) : "–");
    put(this.slots, last && known ? `, ${count(last.slotsUsed)} ${last.slotsUsed === 1 ? "buffer" : "buffers"}` : "");
    this.cache.box.hidden = !(stream.cache && known);
    put(this.cache.value, stream.cache || "");
    this.element.classList.toggle("tsnb-has-gpu", Boolean(now && now.gpus.length));
    put(this.gpu.value, now ? gpus(now) : "–");
  }
}

/** "(loader 0.61, trials 1.28)" */
function shares({ producer, trials }) {
  const seen = trials.filter(Boolean), all = seen.reduce((sum, { cpu }) => sum + cpu, 0);
  const parts = [producer ? `loader ${cores(producer.cpu)}` : "", seen.length ? `trials ${cores(all)}` : ""].filter(Boolean);
  return parts.length ? `(${parts.join(", ")})` : "";
}

function gpus({ gpus: all }) {
  if (!all.length) return "none";
  const busy = all.slice(0, 4).map((gpu) => percent(gpu.busy)).join(", ");
  const usedMiB = all.reduce((sum, gpu) => sum + gpu.usedMiB, 0), totalMiB = all.reduce((sum, gpu) => sum + gpu.totalMiB, 0);
  return `${busy}${all.length > 4 ? ", …" : ""}, ${usedOf(usedMiB, totalMiB)}`;
}
