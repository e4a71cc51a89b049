import { describe, expect, it } from "vitest";
import { sinceOf } from "../../lib/time.ts";
import { daysOf, inOrder, MOST_DAYS, type StepStats } from "./stats.ts";

const NOW = Date.parse("2026-11-17T14:30:45.123Z");

describe("a period", () => {
  it("begins with a whole day of UTC, so that its bars are whole days", () => {
    expect(sinceOf("7d", NOW)).toBe("2026-11-11T00:00:00Z");
    expect(sinceOf("24h", NOW)).toBe("2026-11-16T14:30:00Z");
    expect(sinceOf("all", NOW)).toBe("");
  });

  it("has a bar for each of its days, with runs or without", () => {
    const ran = { day: "2026-11-15", runs: 3, failed: 1, p50_ms: 20 };
    const days = daysOf([ran], sinceOf("7d", NOW), NOW);
    expect(days).toHaveLength(7);
    expect(days[0]).toEqual({ day: "2026-11-11", runs: 0, failed: 0, p50_ms: null });
    expect(days[4]).toBe(ran);
    expect(days.at(-1)?.day).toBe("2026-11-17");
  });

  it("without a beginning starts at the oldest run, and is never longer than can be drawn", () => {
    const day = (text: string) => ({ day: text, runs: 1, failed: 0, p50_ms: 1 });
    expect(daysOf([day("2026-11-17"), day("2026-11-04")], "", NOW)).toHaveLength(14);
    expect(daysOf([day("2026-11-17")], "", NOW)).toHaveLength(7);
    expect(daysOf([day("2026-11-17"), day("2024-01-01")], "", NOW)).toHaveLength(MOST_DAYS);
  });
});

it("orders steps by how often they failed, then by how large a part of them did", () => {
  const step = (name: string, runs: number, failed: number): StepStats => ({
    step: name,
    runs,
    failed,
    p50_ms: 1,
    p95_ms: 1,
    slowest_ms: 1,
    slowest_in: "1",
  });
  const steps = [step("slow", 9, 0), step("often", 90, 3), step("always", 3, 3)];
  expect(inOrder(steps, "slow").map((one) => one.step)).toEqual(["slow", "often", "always"]);
  expect(inOrder(steps, "failing").map((one) => one.step)).toEqual(["always", "often", "slow"]);
});
