import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES } from "./sources.mjs";

const { leave } = await import(`${SOURCES}/outputs.js`);

const SVG = "image/svg+xml", WIDGET = "application/vnd.jupyter.widget-view+json", MARK = "tsnb-still-0a";
const picture = (words) => ({ output_type: "display_data", data: { [SVG]: `<svg id="${MARK}">${words}</svg>` } });
const widget = { output_type: "display_data", data: { [WIDGET]: { model_id: "m" } } };

/** A notebook's widget manager, as far as it is used: a list of outputs for each cell. */
function manager(...cells) {
  const of = (outputs) => ({ outputs: { length: outputs.length, get: (k) => outputs[k], set: (k, one) => (outputs[k] = one), add: (one) => outputs.push(one) } });
  return { context: { model: { cells: { length: cells.length, get: (k) => of(cells[k]) } } } };
}

test("a picture is renewed in each cell that has it, else left in the cell of its panel", () => {
  const one = [widget, picture("old")], two = [picture("old")], { data } = picture("new");
  assert.ok(leave(manager(one, [], two), { model: "m", mark: MARK, data }));
  assert.deepEqual([one[1].data, two[0].data], [data, data]);
  const bare = [widget];
  assert.ok(leave(manager([], bare), { model: "m", mark: MARK, data }));
  assert.deepEqual(bare[1].data, data);
  assert.ok(!leave(manager([]), { model: "m", mark: MARK, data }));
});
