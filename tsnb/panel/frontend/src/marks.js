// Where the labels of marks go, so that no two overlap. Pure.

/**
 * The labels that find room, newest first: [{k, left, row}]. `at`: where the marks are, oldest first; `wide`: how wide
 * their labels are; they may lie between `from` and `to`, in so many rows. A label stands before its mark, or after it
 * where there is no room.
 */
export function labels(at, wide, from, to, rows) {
  const taken = Array.from({ length: rows }, () => []);
  const placed = [];
  for (let k = at.length - 1; k >= 0; k--) {
    const places = [at[k] - wide[k] - 2, at[k] + 2].filter((left) => left >= from && left + wide[k] <= to);
    const found = taken.flatMap((row, number) => places.map((left) => ({ k, left, row: number })));
    const free = found.find(({ left, row }) => taken[row].every(([a, b]) => left >= b + 2 || left + wide[k] <= a - 2));
    if (!free) continue;
    taken[free.row].push([free.left, free.left + wide[k]]);
    placed.push(free);
  }
  return placed;
}
