// Curves: what each trial has logged, by metric, bounded as the kernel bounds it (tsnb/telemetry/shown/curves.py): the same function,
// in float32 as there, so that a page that opens late has the points of one that stayed open. Knows no DOM.

const POINTS = 512; // of one curve at most
const FEWEST = 40; // and at least
const BUDGET = 60000; // of all

/** A point is [t, batches, epochs, last, low, high, mean, values]; see `POINT` there. */
export const T = 0, BATCHES = 1, EPOCHS = 2, LAST = 3, LOW = 4, HIGH = 5, MEAN = 6, VALUES = 7;

export class Curves {
  constructor(curves = []) {
    this.byKey = new Map();
    for (const { lane, metric, width, points } of curves) this.byKey.set(key(lane, metric), { width, points });
    this.version = 0;
  }

  /** at: [t, batches, epochs]; several: [low, high, mean, values], where the value is the last of them */
  add(lane, metric, at, value, several) {
    const name = key(lane, metric);
    if (!this.byKey.has(name)) {
      this.byKey.set(name, { width: 1, points: [] });
      for (const each of this.byKey.values()) fit(each, this.room);
    }
    const curve = this.byKey.get(name);
    const last = Math.fround(value);
    put(curve, [...at.map(Math.fround), last, ...(several || [last, last, last, Number.isFinite(last) ? 1 : 0])]);
    fit(curve, this.room);
    this.version += 1;
  }

  get room() {
    return Math.max(FEWEST, Math.min(POINTS, Math.floor(BUDGET / this.byKey.size)));
  }

  /** Another run of that lane's trial begins: what the last one logged is its former run's, at -1 - lane. */
  beginAnew(lane) {
    const of = (one) => [...this.byKey.keys()].filter((name) => name.startsWith(`${one} `)), now = of(lane);
    if (!now.length) return;
    for (const name of of(-1 - lane)) this.byKey.delete(name);
    for (const name of now) {
      this.byKey.set(key(-1 - lane, name.split(" ")[1]), this.byKey.get(name));
      this.byKey.delete(name);
    }
    this.version += 1;
  }

  of(lane, metric) {
    const curve = this.byKey.get(key(lane, metric));
    return curve ? curve.points : [];
  }

  last(lane, metric) {
    const points = this.of(lane, metric);
    return points.length ? points[points.length - 1][LAST] : undefined;
  }

  all() {
    return [...this.byKey].map(([name, { width, points }]) => {
      const [lane, metric] = name.split(" ").map(Number);
      return { lane, metric, width, points };
    });
  }
}

const key = (lane, metric) => `${lane} ${metric}`;

/** Take in a value as a point; of several at one batch the last one counts, until stretches are joined. */
function put({ width, points }, point) {
  const before = points[points.length - 1];
  if (!before || Math.floor(point[BATCHES] / width) > Math.floor(before[BATCHES] / width)) points.push(point);
  else points[points.length - 1] = width === 1 ? point : joined(before, point);
}

/** Join stretches in pairs until there are no more than `most` points. */
function fit(curve, most) {
  while (curve.points.length > most) {
    const { points } = curve;
    Object.assign(curve, { width: curve.width * 2, points: [] });
    for (const point of points) put(curve, point);
  }
}

function joined(before, point) {
  const out = point.slice();
  if (before[VALUES] && point[VALUES]) {
    const count = before[VALUES] + point[VALUES];
    out[LOW] = Math.min(before[LOW], point[LOW]);
    out[HIGH] = Math.max(before[HIGH], point[HIGH]);
    out[MEAN] = Math.fround((before[MEAN] * before[VALUES] + point[MEAN] * point[VALUES]) / count);
    out[VALUES] = count;
  } else if (before[VALUES]) for (let k = LOW; k <= VALUES; k++) out[k] = before[k];
  return out;
}
