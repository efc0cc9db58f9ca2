// Curves: what each trial has logged, by metric, bounded as the kernel bounds it (tsnb/telemetry/frames.py). Knows no DOM.

const POINTS = 2000; // of one curve; more than a chart is wide

export class Curves {
  constructor(curves = []) {
    this.byKey = new Map();
    for (const { lane, metric, points } of curves) this.byKey.set(key(lane, metric), points);
    this.version = 0;
  }

  /** point: [t, batches, epochs, value] */
  add(lane, metric, point) {
    const name = key(lane, metric), points = this.byKey.get(name) || [];
    points.push(point);
    this.byKey.set(name, points.length > POINTS ? thinned(points) : points);
    this.version += 1;
  }

  /** Another run of that lane's trial begins. */
  forget(lane) {
    for (const name of [...this.byKey.keys()]) if (name.startsWith(`${lane} `)) this.byKey.delete(name);
    this.version += 1;
  }

  of(lane, metric) {
    return this.byKey.get(key(lane, metric)) || [];
  }

  last(lane, metric) {
    const points = this.of(lane, metric);
    return points.length ? points[points.length - 1][3] : undefined;
  }

  all() {
    return [...this.byKey].map(([name, points]) => {
      const [lane, metric] = name.split(" ").map(Number);
      return { lane, metric, points };
    });
  }
}

const key = (lane, metric) => `${lane} ${metric}`;

/** Of every four points in a row the lowest and the highest; the newest stay. */
export function thinned(points) {
  const whole = Math.floor((points.length - 1) / 4) * 4, kept = [];
  for (let k = 0; k < whole; k += 4) {
    let low = k, high = k + 1;
    for (let j = k; j < k + 4; j++) {
      if (points[j][3] < points[low][3]) low = j;
      if (points[j][3] >= points[high][3]) high = j;
    }
    if (low === high) low = high === k ? k + 1 : k;
    kept.push(points[Math.min(low, high)], points[Math.max(low, high)]);
  }
  return [...kept, ...points.slice(whole)];
}
