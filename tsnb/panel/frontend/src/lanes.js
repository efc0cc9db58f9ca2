// Which of the lanes' logged numbers come first. Pure.

/** The names of all logged numbers, in the order of the columns. */
export function metricsOf(lanes) {
  const names = [...new Set(lanes.flatMap((lane) => (lane ? lane.metrics : [])))];
  const rank = (name) => (/loss/i.test(name) ? 0 : /acc/i.test(name) ? 1 : 2);
  return names.sort((a, b) => rank(a) - rank(b));
}
