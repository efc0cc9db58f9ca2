// What is there on demand: more charts over time, and who uses the machine.

import { attribute, make, put, style } from "./dom.js";
import { Paces } from "./paces.js";
import { paint } from "./theme.js";
import { cores, count, mebibytes, pace, percent, usedOf } from "./words.js";

const COLUMNS = [["process", "tsnb-p-name"], ["CPU", "tsnb-p-cpu"], ["cores busy", "tsnb-n"], ["may use", "tsnb-n"], ["memory", "tsnb-n tsnb-p-wide"], ["GPU memory", "tsnb-n tsnb-p-wide"]];

let panes = 0;

export class Details {
  constructor(charts) {
    this.id = `tsnb-details-${++panes}`;
    this.body = make("tbody");
    const head = COLUMNS.map(([label, name]) => make("th", name, label));
    head.forEach((cell) => (cell.scope = "col"));
    this.table = make("table", "tsnb-table tsnb-machine", make("thead", "", make("tr", "", ...head)), this.body);
    attribute(this.table, "aria-label", "Processes on this machine");
    this.paces = new Paces();
    this.note = make("p", "tsnb-soft tsnb-note");
    this.element = make("section", "tsnb-details", charts, this.paces.element, this.table, this.note);
    attribute(this.element, "aria-label", "Details");
    this.element.id = this.id;
    this.element.hidden = true;
    this.shown = false;
  }

  hide() {
    this.shown = false;
    this.element.hidden = true;
  }

  draw(store) {
    this.element.hidden = !this.shown;
    if (!this.shown) return;
    const { machine, last, stream } = store;
    this.table.hidden = !machine;
    this.paces.draw(store);
    if (machine) this.fill(rowsOf(store), machine);
    const copied = last && last.copied ? `, ${percent(last.copied / last.batches)} of them copied into shared memory` : "";
    const made = last ? `${count(last.batches)} batches prepared once each${copied}; window ${stream.window}.${alone(last)}` : "";
    put(this.note, `${made}${machine ? "" : " This panel has no data about the machine."}`.trim());
  }

  fill(rows, machine) {
    while (this.body.children.length > rows.length) this.body.lastChild.remove();
    while (this.body.children.length < rows.length) this.body.append(emptyRow());
    rows.forEach((row, k) => {
      const [name, bar, ...numbers] = this.body.children[k].children, [swatch, label] = name.children, meter = bar.firstChild.firstChild;
      put(label, row.name);
      name.title = row.name;
      swatch.style.visibility = row.colour ? "visible" : "hidden";
      for (const part of [swatch, meter]) style(part, "--tsnb-lane", row.colour || "var(--tsnb-soft)");
      style(meter, "width", `${(100 * Math.min(1, (row.share ?? row.cpu / machine.cores) || 0)).toFixed(1)}%`);
      [row.busy ?? cores(row.cpu), row.cores, row.memory, row.gpu].forEach((text, at) => put(numbers[at], text));
    });
  }
}

const alone = ({ alonePerS }) => (Number.isFinite(alonePerS) ? ` The loader alone: ${pace(alonePerS)} batches/s at most.` : "");

function emptyRow() {
  const name = make("th", "tsnb-p-name", make("span", "tsnb-swatch"), make("span", "tsnb-trial"));
  name.scope = "row";
  const bar = make("td", "tsnb-p-cpu", make("div", "tsnb-bar", make("i", "tsnb-computing")));
  return make("tr", "", name, bar, ...Array.from({ length: 4 }, () => make("td", "tsnb-n")));
}

export const gpuName = ({ index }, name) => `GPU ${index} ${name || ""}`.trim();

/** The rows: the loader, each trial, the whole machine, each GPU. */
export function rowsOf({ machine, lanes, gpus }) {
  const { producer, trials, cores: all, cpu, usedMiB, totalMiB } = machine;
  const gpu = (process) => (machine.gpus.length ? mebibytes(process.gpuMiB) : "–");
  const row = (name, paint, process) => ({ name, colour: paint, cpu: process.cpu, cores: count(process.cores), memory: mebibytes(process.memoryMiB), gpu: gpu(process) });
  const rows = producer ? [row("loader and its workers", "#59636e", producer)] : [];
  trials.forEach((process, lane) => process && lanes[lane] && rows.push(row(lanes[lane].name, paint(lane), process)));
  rows.push({ name: "all processes", cpu, cores: count(all), memory: usedOf(usedMiB, totalMiB), gpu: "–" });
  machine.gpus.forEach((device, k) => {
    rows.push({ name: gpuName(device, gpus[k]), share: device.busy, busy: percent(device.busy), cores: "–", memory: "–", gpu: usedOf(device.usedMiB, device.totalMiB) });
  });
  return rows;
}
