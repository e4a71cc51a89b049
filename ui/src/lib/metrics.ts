/** Numbers from Prometheus' text format, without Prometheus. */

export interface Sample {
  at: number;
  values: Map<string, number>;
}

/** All values by name and labels; histograms by `name_bucket{le="…"}`. */
export function parseMetrics(text: string): Map<string, number> {
  const values = new Map<string, number>();
  for (const line of text.split("\n")) {
    if (!line || line.startsWith("#")) continue;
    const space = line.lastIndexOf(" ");
    const value = Number(line.slice(space + 1));
    if (space > 0 && !Number.isNaN(value)) values.set(line.slice(0, space), value);
  }
  return values;
}

/** The sum of a counter over its labels. */
export function total(values: Map<string, number>, name: string): number {
  let sum = 0;
  for (const [key, value] of values) if (key === name || key.startsWith(`${name}{`)) sum += value;
  return sum;
}

/** How much a counter grew a second, between samples. */
export function rates(samples: readonly Sample[], name: string): number[] {
  return samples.slice(1).map((now, index) => {
    const before = samples[index];
    if (!before || now.at <= before.at) return 0;
    // A server that was started again counts from 0.
    return Math.max(0, total(now.values, name) - total(before.values, name)) / ((now.at - before.at) / 1000);
  });
}

/** A share of observations took at most this long, in seconds, between samples; 0 when there were none. */
export function quantiles(samples: readonly Sample[], name: string, share: number): number[] {
  return samples.slice(1).map((now, index) => {
    const before = samples[index];
    const buckets: [number, number][] = [];
    for (const [key, value] of now.values) {
      if (!key.startsWith(`${name}_bucket{`)) continue;
      const [, edge = ""] = /le="([^"]+)"/.exec(key) ?? [];
      buckets.push([edge === "+Inf" ? Number.POSITIVE_INFINITY : Number(edge), value - (before?.values.get(key) ?? 0)]);
    }
    buckets.sort(([a], [b]) => a - b);
    const all = buckets.at(-1)?.[1] ?? 0;
    if (all <= 0) return 0;
    const finite = buckets.filter(([edge]) => Number.isFinite(edge));
    return (finite.find(([, count]) => count >= share * all) ?? finite.at(-1) ?? [0])[0];
  });
}
