// Which lanes get a row, and which of their logged numbers a column or a chart. Pure.

const MOST_ROWS = 12; // trials that left give way first

/** The lanes that get a row: all that are here, then those that left last. */
export function visible(lanes) {
  const numbers = lanes.map((_, lane) => lane).filter((lane) => lanes[lane]);
  const here = numbers.filter((lane) => lanes[lane].here);
  const left = numbers.filter((lane) => !lanes[lane].here).sort((a, b) => lanes[b].since_s - lanes[a].since_s);
  return [...here, ...left.slice(0, Math.max(0, MOST_ROWS - here.length))].sort((a, b) => a - b);
}

/** The names of all logged numbers, in the order of the columns. */
export function metricsOf(lanes) {
  const names = [...new Set(lanes.flatMap((lane) => (lane ? lane.metrics : [])))];
  const rank = (name) => (/loss/i.test(name) ? 0 : /acc/i.test(name) ? 1 : 2);
  return names.sort((a, b) => rank(a) - rank(b));
}
