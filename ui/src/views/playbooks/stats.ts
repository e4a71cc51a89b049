/** Statistics of a playbook as the server makes them, and their days in a row. Days are those of UTC. */

export const ORDERS = ["slow", "failing"] as const;
export type Order = (typeof ORDERS)[number];

/** One step, over all runs. */
export interface StepStats {
  step: string;
  runs: number;
  failed: number;
  p50_ms: number | null;
  p95_ms: number | null;
  slowest_ms: number | null;
  /** the run with the longest one */
  slowest_in: string;
}

/** The runs that were requested on one day. */
export interface DayStats {
  /** 2026-11-17 */
  day: string;
  runs: number;
  failed: number;
  /** of those that completed */
  p50_ms: number | null;
}

const DAY_MS = 86_400_000;
/** Bars that are drawn: so many at least, and at most. */
const LEAST_DAYS = 7;
export const MOST_DAYS = 90;

/** Every day from the first to today, oldest first, and at least a week; those without a run are there, too. */
export function daysOf(days: readonly DayStats[], since: string, now: number): DayStats[] {
  const given = new Map(days.map((one) => [one.day, one]));
  const today = Math.floor(now / DAY_MS);
  const oldest = days.at(-1)?.day ?? "";
  const length = today - Math.floor(Date.parse(since || oldest) / DAY_MS) + 1 || 0;
  const count = Math.min(MOST_DAYS, Math.max(LEAST_DAYS, length));
  return Array.from({ length: count }, (_, index) => {
    const day = new Date((today - count + 1 + index) * DAY_MS).toISOString().slice(0, 10);
    return given.get(day) ?? { day, runs: 0, failed: 0, p50_ms: null };
  });
}

/** The steps in an order. The server has the slowest first, by p95. */
export function inOrder(steps: readonly StepStats[], order: Order): StepStats[] {
  if (order === "slow") return [...steps];
  return [...steps].sort((a, b) => b.failed - a.failed || b.failed / b.runs - a.failed / a.runs);
}
