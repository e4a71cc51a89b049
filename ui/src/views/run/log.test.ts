import { describe, expect, it } from "vitest";
import { rangeOf } from "./context.ts";
import { isBookkeeping, type Part, RunLog } from "./log.ts";
import { Moments } from "./moment.ts";
import { criticalPath, histogram, Spans, sharesOf } from "./spans.ts";

type Row = [type: string, step?: string, task?: string, item?: number | string, ms?: number, more?: object];

function logOf(rows: Row[]): RunLog {
  const log = new RunLog();
  log.append(partOf(rows, 1));
  return log;
}

function partOf(rows: Row[], first: number): Part {
  return {
    first,
    at: "2026-01-31T12:00:00.000Z",
    kinds: rows.map(([type, step = "", task = ""]) => [type, step, task, type.startsWith("task.") ? 1 : 0]),
    what: rows.map((_, index) => index),
    item: rows.map(([, , , item = -1]) => item),
    run: [1, rows.length],
    ms: rows.map(([, , , , ms = 0]) => ms),
    more: Object.fromEntries(rows.flatMap(([, , , , , more], index) => (more ? [[first + index, more]] : []))),
  };
}

const RUN: Row[] = [
  ["workflow.started", "", "", -1, 0, { token: 1 }],
  ["step.scheduled", "start", "", -1, 0, { tokens: [1] }],
  ["step.started", "start", "", -1, 5],
  ["task.started", "start", "go"],
  ["task.attempt.failed", "start", "go", -1, 10],
  ["task.attempt.started", "start", "go", -1, 100],
  ["task.done", "start", "go", -1, 10],
  ["step.done", "start"],
  ["next.evaluated", "start", "", -1, 0, { selected: [{ step: "loop", arc: 1, token: 2 }] }],
  ["step.scheduled", "loop", "", -1, 0, { tokens: [2], total: 3 }],
  ["step.started", "loop", "", -1, 1],
  ["loop.iteration.started", "loop", "", 0],
  ["loop.iteration.started", "loop", "", 1],
  ["loop.iteration.done", "loop", "", 0, 20],
  ["loop.iteration.failed", "loop", "", 1, 20],
  ["step.failed", "loop"],
  ["next.evaluated", "loop", "", -1, 0, { selected: [] }],
  ["playbook.finished"],
];

const WAITING: Row[] = [
  ["step.scheduled", "ship", "", -1, 0, { tokens: [1] }],
  ["step.started", "ship"],
  ["task.started", "ship", "ask"],
  ["command.completed", "ship", "ask", -1, 5, { waits: true, until: 1_769_860_800_000_000 }],
  ["task.done", "ship", "ask", -1, 1000],
  ["command.issued", "ship"],
  ["task.started", "ship", "send"],
  ["step.done", "ship"],
];

describe("a step that waits", () => {
  it("is drawn as waiting, with its task and its end, until the wait is over", () => {
    const moments = new Moments(logOf(WAITING));
    expect(moments.at(3).steps.get("ship")).toMatchObject({ state: "running", wait: null });
    const wait = { task: "ask", until: Date.parse("2026-01-31T12:00:00Z"), child: "" };
    expect(moments.at(4).steps.get("ship")).toMatchObject({ state: "waiting", wait });
    expect(moments.at(5).steps.get("ship")).toMatchObject({ state: "running", wait: null });
    expect(moments.at(8).steps.get("ship")?.state).toBe("done");
  });

  it("is a waiting span in the chart", () => {
    const spans = new Spans(logOf(WAITING.slice(0, 4)), () => "approval");
    spans.advance();
    expect(spans.steps[0]?.state).toBe("waiting");
    expect(spans.steps[0]?.segments.at(-1)?.kind).toBe("person");
  });
});

describe("a log in outline", () => {
  it("takes each event once, whatever parts overlap", () => {
    const log = logOf(RUN.slice(0, 6));
    log.append(partOf(RUN.slice(3), 4));
    expect(log.length).toBe(RUN.length);
    expect(log.line(14)).toMatchObject({ seq: 14, type: "loop.iteration.done", step: "loop", item: "0" });
  });

  it("knows tokens, steps and items after any event", () => {
    const moments = new Moments(logOf(RUN));
    expect([...moments.at(1).tokens.values()]).toEqual(["entry"]);
    expect(moments.at(5).steps.get("start")?.state).toBe("running");
    expect([...moments.at(9).tokens.values()]).toEqual(["arc:start:1"]);
    expect(moments.at(14).steps.get("loop")).toMatchObject({ state: "running", total: 3, ok: 1, items: 1 });
    expect(moments.at(2).steps.get("start")?.state).toBe("queued");
    expect(moments.at(99).steps.get("loop")).toMatchObject({ state: "failed", failed: 1 });
    expect(moments.at(99).over).toBe(true);
  });

  it("keeps copies, so that a jump back is as quick as one forward", () => {
    const rows: Row[] = Array.from({ length: 5000 }, (_, index) => [
      index % 2 ? "loop.iteration.done" : "loop.iteration.started",
      "loop",
      "",
      Math.floor(index / 2),
    ]);
    const moments = new Moments(logOf(rows));
    expect(moments.at(5000).steps.get("loop")?.ok).toBe(2500);
    expect(moments.at(3001).steps.get("loop")).toMatchObject({ ok: 1500, items: 1 });
    expect(moments.at(10).steps.get("loop")?.ok).toBe(5);
  });

  it("counts what a retry goes on with from its own beginning", () => {
    const spans = new Spans(
      logOf([
        ["playbook.execution.requested"],
        ["step.scheduled", "loop", "", -1, -8000, { total: 2 }], // eight seconds before, in another run
        ["step.started", "loop"],
        ["loop.iteration.started", "loop", "", 0],
        ["loop.iteration.started", "loop", "", 1],
        ["loop.iteration.done", "loop", "", 0, 20],
        ["task.started", "loop", "take", 1, 8080],
        ["task.done", "loop", "take", 1, 5],
        ["loop.iteration.done", "loop", "", 1, 5],
        ["step.done", "loop"],
      ]),
      () => "noop",
    );
    spans.advance();
    const [loop] = spans.steps;
    const took = [loop, loop?.items.get("0"), loop?.items.get("1")].map((one) => (one?.to ?? 0) - (one?.from ?? 0));
    expect(took).toEqual([110, 20, 110]);
  });

  it("tells waiting, work and back-off apart, and finds the critical path", () => {
    const spans = new Spans(logOf(RUN), () => "python");
    spans.advance();
    const [start, loop] = spans.steps;
    expect(start?.segments.map((one) => [one.kind, (one.to ?? 0) - one.from])).toEqual([
      ["wait", 5],
      ["run", 10],
      ["backoff", 100],
      ["run", 10],
    ]);
    expect(loop?.items.size).toBe(2);
    expect(criticalPath(spans.steps).size).toBe(2);
    // Had it begun with the first fourteen events of another run, it would have kept a step and an item.
    expect(sharesOf(spans.steps, 14)).toEqual({ steps: { kept: 1, ran: 1 }, items: { kept: 1, ran: 1 } });
    expect(sharesOf(spans.steps, 0)).toEqual({ steps: { kept: 0, ran: 2 }, items: { kept: 0, ran: 2 } });
    const bins = histogram(loop?.items.values() ?? [], 0);
    expect(bins.reduce((sum, bin) => sum + bin.done, 0)).toBe(1);
    expect(bins.reduce((sum, bin) => sum + bin.failed, 0)).toBe(1);
  });
});

describe("the list of events", () => {
  it("finds the events of a span of time, though clocks differ", () => {
    const log = logOf([
      ["workflow.started", "", "", -1, 0],
      ["step.scheduled", "a", "", -1, 100],
      ["step.started", "a", "", -1, -30],
      ["step.done", "a", "", -1, 200],
    ]);
    const begin = log.at[0] ?? 0;
    expect(log.within(begin + 60, begin + 100)).toEqual([2, 3]);
    expect(log.within(begin, begin + 1000)).toEqual([1, 4]);
    expect(log.within(begin + 101, begin + 200)).toBeNull();
  });

  it("takes only ranges that are ranges", () => {
    expect(rangeOf("120-300")).toEqual([120, 300]);
    expect([undefined, "", "5", "9-3", "0-4", "a-b", "1-2-3"].map(rangeOf)).toEqual(Array(7).fill(null));
  });

  it("keeps what people look for when it is compact", () => {
    const kept = ["playbook.started", "step.started", "task.done", "task.attempt.failed", "loop.iteration.failed"];
    expect(kept.filter(isBookkeeping)).toEqual([]);
    const left = ["command.issued", "step.scheduled", "task.started", "next.evaluated", "policy.task.evaluated"];
    expect(left.filter((type) => !isBookkeeping(type))).toEqual([]);
  });
});
