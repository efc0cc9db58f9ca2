import assert from "node:assert/strict";
import { test } from "node:test";
import { SOURCES } from "./sources.mjs";

const { labels } = await import(`${SOURCES}/marks.js`);

test("a label stands before its mark, or after it where there is no room", () => {
  assert.deepEqual(labels([150], [40], 0, 200, 1), [{ k: 0, left: 108, row: 0 }]);
  assert.deepEqual(labels([10], [40], 0, 200, 1), [{ k: 0, left: 12, row: 0 }]);
  assert.deepEqual(labels([100], [400], 0, 200, 1), []);
});

test("no two labels overlap, and the newest has its place first", () => {
  const at = Array.from({ length: 30 }, (_, k) => 10 * k), wide = at.map(() => 80);
  const placed = labels(at, wide, 0, 300, 2);
  assert.equal(placed[0].k, 29);
  assert.ok(placed.length >= 4);
  for (const a of placed)
    for (const b of placed)
      assert.ok(a === b || a.row !== b.row || a.left + 80 < b.left || b.left + 80 < a.left);
});
