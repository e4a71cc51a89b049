import type { Activity } from "../../api/types.ts";
import { millis } from "../../lib/time.ts";

export interface Bar {
  /** its beginning, in milliseconds */
  at: number;
  completed: number;
  failed: number;
  cancelled: number;
}

const HOUR_MS = 3_600_000;

/** The hours of an activity as bars of `group` hours each; hours without a run are there, too. */
export function barsOf(activity: Activity, hours: number, group: number): Bar[] {
  const since = millis(activity.since);
  const bars = Array.from({ length: Math.ceil(hours / group) }, (_, index) => ({
    at: since + index * group * HOUR_MS,
    completed: 0,
    failed: 0,
    cancelled: 0,
  }));
  for (const hour of activity.hours) {
    const bar = bars[Math.floor((millis(hour.at) - since) / HOUR_MS / group)];
    if (!bar) continue;
    bar.completed += hour.completed;
    bar.failed += hour.failed;
    bar.cancelled += hour.cancelled;
  }
  return bars;
}
