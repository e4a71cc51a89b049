/** Times and spans as people read them. The server's times are RFC 3339 with microseconds. */

export function millis(at: string): number {
  return Date.parse(at);
}

const UNITS: [number, string][] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "m"],
  [1000, "s"],
];

/** "0.4 s", "12.4 s", "3 m 20 s", "2 h 5 m", "4 d 3 h". */
export function spanText(ms: number): string {
  const span = Math.max(0, ms);
  if (span < 1) return "0 s";
  if (span < 100) return `${Math.round(span)} ms`;
  if (span < 60_000) return `${(Math.floor(span / 100) / 10).toFixed(1)} s`;
  const at = UNITS.findIndex(([size]) => span >= size);
  const [size, name] = UNITS[at] ?? [1000, "s"];
  const whole = Math.floor(span / size);
  const next = UNITS[at + 1];
  const part = next ? Math.floor((span - whole * size) / next[0]) : 0;
  return next && part ? `${whole} ${name} ${part} ${next[1]}` : `${whole} ${name}`;
}

const ROUND_MS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000,
];

/** Round times within a span of `width` that begins at `begin`, four or five of them; both in milliseconds. */
export function ticksOf(begin: number, width: number): number[] {
  const least = width / 5;
  let step = ROUND_MS.find((size) => size >= least) ?? 1_800_000;
  while (step < least) step *= 2;
  const ticks: number[] = [];
  // A text behind the last eighth would not fit.
  for (let at = Math.ceil(begin / step) * step; at <= begin + width * 0.93; at += step) ticks.push(at);
  return ticks;
}

/** A tick as exact as its neighbours are far: "150 ms", "0.5 s", "2 s", "1 m 30 s". */
export function tickText(at: number, ticks: readonly number[]): string {
  const step = (ticks[1] ?? at) - (ticks[0] ?? 0);
  if (at === 0 || at >= 60_000) return spanText(at);
  if (step < 100 && at < 1000) return `${at} ms`;
  return `${(at / 1000).toFixed(step >= 1000 ? 0 : step >= 100 ? 1 : step >= 10 ? 2 : 3)} s`;
}

/** "just now", "12 s ago", "in 3 h": one unit, so that it is read at a glance. */
export function relativeText(at: number, now: number): string {
  const span = Math.abs(now - at);
  if (span < 1000) return "just now";
  const [size, name] = UNITS.find(([unit]) => span >= unit) ?? [1000, "s"];
  const text = `${Math.floor(span / size)} ${name}`;
  return at <= now ? `${text} ago` : `in ${text}`;
}

/** How long a text of `relativeText` stays true. */
export function relativeLasts(at: number, now: number): number {
  const span = Math.abs(now - at);
  return span < 60_000 ? 1000 : span < 3_600_000 ? 15_000 : 60_000;
}

const pad = (value: number, digits = 2): string => String(value).padStart(digits, "0");

/** "2026-11-16 09:12:07.412", in the zone of this browser. */
export function exactText(at: number): string {
  const date = new Date(at);
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  return `${day} ${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`;
}

/** "09:12" */
export function clockText(at: number): string {
  const date = new Date(at);
  return `${pad(date.getHours())}:${pad(date.getMinutes())}`;
}

/** "Mon 16 Nov", in the zone of this browser unless another is given */
export function dayText(at: number, timeZone?: "UTC"): string {
  return new Date(at).toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short", timeZone });
}

export function zoneText(at: number): string {
  const minutes = -new Date(at).getTimezoneOffset();
  const ahead = Math.abs(minutes);
  return `UTC${minutes < 0 ? "−" : "+"}${Math.floor(ahead / 60)}${ahead % 60 ? `:${pad(ahead % 60)}` : ""}`;
}

/** Periods that end now. */
export const PERIODS = ["24h", "7d", "30d", "90d", "all"] as const;
export type Period = (typeof PERIODS)[number];

const DAYS: Record<Exclude<Period, "24h" | "all">, number> = { "7d": 7, "30d": 30, "90d": 90 };

/** When a period begins ('' for all time): a day ago to the minute, or some whole days of UTC with today as the last. */
export function sinceOf(period: Period, now: number): string {
  if (period === "all") return "";
  const begun =
    period === "24h"
      ? Math.floor((now - 86_400_000) / 60_000) * 60_000
      : (Math.floor(now / 86_400_000) - DAYS[period] + 1) * 86_400_000;
  return new Date(begun).toISOString().replace(".000Z", "Z");
}
