// Where the modules under test are, and streams to test them with.

export const SOURCES = new URL("../../../tsnb/panel/frontend/src", import.meta.url).href;

export const bytes = (numbers) => new DataView(Float32Array.from(numbers).buffer);

export const lane = (name, metrics = []) => ({ name, here: true, since_s: 0, metrics });

/** One frame. rows: {lane: {lag, rate, computing, held, batches, joining, paused, metrics}}; machine: {cores, cpu, trials: {lane: cpu}, loader}. */
export function frame(t, rows, machine) {
  const body = Object.entries(rows).flatMap(([number, { state = 1, fill = 0, lag = 0, rate = 0, computing = 0, held = 0, batches = 0 }]) => [
    16 * Number(number) + state, fill, lag, rate, computing, 0, held, 0, batches,
  ]);
  const apart = Object.entries(rows).filter(([, row]) => row.joining || row.paused);
  if (apart.length) body.push(-4, apart.length, ...apart.flatMap(([number, { joining = 0, paused = 0 }]) => [Number(number), joining, paused, 0]));
  if (machine) body.push(...seen(machine));
  const logged = Object.entries(rows).flatMap(([number, { metrics = [] }]) => metrics.map((value, k) => [1024 * Number(number) + k, value]));
  if (logged.length) body.push(-2, ...logged.flat());
  return [t, 12 + body.length, 1, 0, 0, 0, NaN, 0, 0, 0, 0, NaN, ...body];
}

function seen({ cores, cpu, trials = {}, loader = 0 }) {
  const processes = Object.entries({ ...trials, "-1": loader }).map(([number, busy]) => [Number(number), busy, 100, 1, 0]);
  return [-1, cores, cpu, 1024, 4096, processes.length, 0, ...processes.flat()];
}

/** A store with these frames. */
export function filled(Store, frames, lanes = [lane("a"), lane("b")]) {
  const store = new Store(() => 0);
  store.load({ n: frames.length, states: ["joining", "streaming", "timed out"], lanes }, bytes(frames.flat()));
  return store;
}
