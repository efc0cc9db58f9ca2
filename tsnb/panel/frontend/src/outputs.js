// What a panel leaves in the notebook that shows it: its picture, a report. A page that was loaded again drops what the kernel
// publishes for a cell that it has not started, so the panel puts it there, through the widget manager that knows the notebook
// (JupyterLab, Notebook 7). Other pages have none.

const WIDGET = "application/vnd.jupyter.widget-view+json";
const SVG = "image/svg+xml", HTML = "text/html";

const textOf = (output, kind) => [output.data[kind] ?? ""].flat().join("");
const has = (output, mark) => [SVG, HTML].some((kind) => textOf(output, kind).includes(`id="${mark}"`));

/** The outputs of the notebook's cells, one list a cell; empty: this page does not say. */
export function cellsOf(manager) {
  const cells = manager?.context?.model?.cells, found = [];
  for (let k = 0; k < (cells?.length ?? 0); k++) if (cells.get(k).outputs) found.push(cells.get(k).outputs);
  return found;
}

/**
 * Have an output with that mark in the notebook: in its own places (each cell that shows the panel has its picture), or as the last one of the cell that shows the widget. Returns
 * whether the page has it now. `seen`: whether the page shows one of that mark that is in no notebook.
 */
export function leave(manager, { model, mark, data }, seen = () => false) {
  let found = false;
  for (const outputs of cellsOf(manager)) {
    for (let k = 0; k < outputs.length; k++) {
      const output = outputs.get(k);
      if (!has(output, mark)) continue;
      const kind = SVG in data ? SVG : HTML;
      if (textOf(output, kind) !== data[kind]) outputs.set(k, { output_type: "display_data", data, metadata: {} });
      found = true;
    }
  }
  if (found) return true;
  for (const outputs of cellsOf(manager)) {
    for (let k = 0; k < outputs.length; k++) {
      if (outputs.get(k).data[WIDGET]?.model_id !== model) continue;
      outputs.add({ output_type: "display_data", data, metadata: {} });
      return true;
    }
  }
  return seen(mark);
}

/** Selectors of a marked picture, however a page shows it: inline, as an image with its text, or with that in base 64. */
export function picturesOf(mark) {
  if (!/^tsnb-[a-z]+-[0-9a-f]+$/.test(mark || "")) return "";
  const begin = `<svg id="${mark}`, encoded = btoa(begin.slice(0, begin.length - (begin.length % 3)));
  return `:is(img[src*="${mark}"], img[src*="${encoded}"], svg[id^="${mark}"])`;
}
