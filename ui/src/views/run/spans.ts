/** What took how long: step runs, their items and attempts as spans of time, from the outline. */
import type { State } from "../../lib/states.ts";
import { NO_MORE, type RunLog } from "./log.ts";

export type SegmentKind = "wait" | "run" | "backoff" | "pause" | "child" | "person";

export interface Segment {
  kind: SegmentKind;
  from: number;
  /** null: it goes on */
  to: number | null;
  failed?: boolean;
  task?: string;
  attempt?: number;
}

/** A step run, or an item of one. */
export interface Span {
  step: string;
  run: number;
  /** '' for the step run itself */
  item: string;
  /** seq of the first event, and of the one that ended it */
  first: number;
  last: number;
  from: number;
  to: number | null;
  state: State;
  segments: Segment[];
}

export interface StepSpan extends Span {
  items: Map<string, Span>;
  total: number;
  /** the step runs whose tokens it took */
  after: StepSpan[];
}

/** Kinds of tasks that wait for something else than their own work. */
const WAITING: Record<string, SegmentKind> = { playbook: "child", wait: "person", approval: "person" };

export class Spans {
  readonly steps: StepSpan[] = [];
  readonly pauses: Segment[] = [];
  readonly #log: RunLog;
  readonly #kindOf: (step: string, task: string) => string;
  #done = 0;
  #open = new Map<string, StepSpan>();
  #byToken = new Map<number, StepSpan>();

  /** `kindOf` is the kind of a task, e.g. python; '' when it is not known yet. */
  constructor(log: RunLog, kindOf: (step: string, task: string) => string) {
    this.#log = log;
    this.#kindOf = kindOf;
  }

  /** Take in what was added to the log. */
  advance(): void {
    while (this.#done < this.#log.length) this.#take(++this.#done);
  }

  #take(seq: number): void {
    const log = this.#log;
    const { type, step, task, attempt } = log.kindOf(seq);
    const at = log.at[seq - 1] ?? 0;
    const run = log.run[seq - 1] ?? 0;
    const more = log.more.get(seq) ?? NO_MORE;
    const key = `${step}\n${run}`;
    if (type === "step.scheduled") {
      const after = (more.tokens ?? []).map((token) => this.#byToken.get(token)).filter((one) => one !== undefined);
      const span: StepSpan = {
        ...emptySpan(step, run, "", seq, at),
        items: new Map(),
        total: more.total ?? 0,
        after: [...new Set(after)],
      };
      span.segments.push({ kind: "wait", from: at, to: null });
      this.steps.push(span);
      this.#open.set(key, span);
      return;
    }
    if (type === "playbook.paused") this.pauses.push({ kind: "pause", from: at, to: null });
    if (type === "playbook.resumed" || type === "playbook.finished" || type === "execution.cancelled") {
      const pause = this.pauses.at(-1);
      if (pause && pause.to === null) pause.to = at;
    }
    if (type === "playbook.finished" || type === "execution.cancelled") {
      for (const span of this.#open.values()) endSpan(span, seq, at, "cancelled");
      this.#open.clear();
      return;
    }
    const span = this.#open.get(key);
    if (!span) return;
    const item = log.itemOf(seq);
    const part: Span = item === "" ? span : this.#itemOf(span, item, seq, at);
    switch (type) {
      case "step.started":
        close(span, at);
        span.state = "running";
        if (!span.total) break;
        span.segments.push({ kind: "run", from: at, to: null });
        break;
      case "loop.started":
        if (item === "" && more.total) span.total = more.total;
        break;
      case "loop.iteration.started":
        part.state = "running";
        break;
      case "task.started":
      case "task.attempt.started": {
        close(part, at, item === "" && span.total > 0);
        const kind = WAITING[this.#kindOf(step, task)] ?? "run";
        part.segments.push({ kind, from: at, to: null, task, attempt: attempt || 1 });
        part.state = "running";
        break;
      }
      case "command.completed":
        if (more.waits && part.state === "running") part.state = "waiting";
        break;
      case "command.issued":
        if (part.state === "waiting") part.state = "running";
        break;
      case "task.attempt.failed":
        fail(part);
        close(part, at);
        part.segments.push({ kind: "backoff", from: at, to: null, task });
        part.state = "retrying";
        break;
      case "task.done":
        close(part, at, item === "" && span.total > 0);
        break;
      case "task.failed":
        fail(part);
        close(part, at);
        break;
      case "loop.iteration.done":
        endSpan(part, seq, at, "done");
        break;
      case "loop.iteration.failed":
        endSpan(part, seq, at, "failed");
        break;
      case "step.done":
        endSpan(span, seq, at, "done");
        break;
      case "step.failed":
        endSpan(span, seq, at, "failed");
        break;
      case "next.evaluated":
        for (const arc of more.selected ?? []) if (arc.token !== undefined) this.#byToken.set(arc.token, span);
        this.#open.delete(key);
        break;
    }
  }

  #itemOf(span: StepSpan, item: string, seq: number, at: number): Span {
    let found = span.items.get(item);
    if (!found) {
      found = emptySpan(span.step, span.run, item, seq, at);
      span.items.set(item, found);
    }
    return found;
  }
}

function emptySpan(step: string, run: number, item: string, seq: number, at: number): Span {
  return { step, run, item, first: seq, last: 0, from: at, to: null, state: "queued", segments: [] };
}

function close(span: Span, at: number, keep = false): void {
  const open = span.segments.at(-1);
  if (open && open.to === null && !keep) open.to = at;
}

function fail(span: Span): void {
  const open = span.segments.at(-1);
  if (open && open.to === null) open.failed = true;
}

function endSpan(span: Span, seq: number, at: number, state: State): void {
  if (span.last) return;
  close(span, at);
  span.last = seq;
  span.to = at;
  span.state = state;
}

/** The chain of step runs that the end waited for: each was the last to give a token to the next. */
export function criticalPath(steps: readonly StepSpan[]): Set<StepSpan> {
  const path = new Set<StepSpan>();
  let at: StepSpan | undefined;
  for (const span of steps) if (!at || endOf(span) >= endOf(at)) at = span;
  while (at && !path.has(at)) {
    path.add(at);
    let before: StepSpan | undefined;
    for (const one of at.after) if (!before || endOf(one) > endOf(before)) before = one;
    at = before;
  }
  return path;
}

function endOf(span: Span): number {
  return span.to ?? Number.POSITIVE_INFINITY;
}

export interface Bin {
  /** longest duration in it, in milliseconds */
  upTo: number;
  done: number;
  failed: number;
  open: number;
}

/** How long items took: a few bins that grow by a factor. */
export function histogram(items: Iterable<Span>, now: number, count = 8): Bin[] {
  const took: { ms: number; state: State }[] = [];
  let most = 1;
  for (const item of items) {
    const ms = Math.max((item.to ?? now) - item.from, 0);
    took.push({ ms, state: item.state });
    if (ms > most) most = ms;
  }
  if (!took.length) return [];
  const factor = Math.max(most ** (1 / count), 1.01);
  const bins: Bin[] = Array.from({ length: count }, (_, index) => ({
    upTo: factor ** (index + 1),
    done: 0,
    failed: 0,
    open: 0,
  }));
  for (const { ms, state } of took) {
    const at = ms <= 1 ? 0 : Math.min(count - 1, Math.max(0, Math.ceil(Math.log(ms) / Math.log(factor)) - 1));
    const bin = bins[at];
    if (!bin) continue;
    if (state === "done") bin.done++;
    else if (state === "failed") bin.failed++;
    else bin.open++;
  }
  return bins;
}

/** How many of some steps or items a run took over from another one, and how many it ran itself. */
export interface Share {
  kept: number;
  ran: number;
}

/** Whether a span ended within the first `events` of the log: those that a retry or fork took over. */
export function isKept(span: Span, events: number): boolean {
  return span.last > 0 && span.last <= events;
}

/** What a run that began with `events` of another one took over, and what it ran itself. */
export function sharesOf(steps: Iterable<StepSpan>, events: number): { steps: Share; items: Share } {
  const shares = { steps: { kept: 0, ran: 0 }, items: { kept: 0, ran: 0 } };
  for (const step of steps) {
    shares.steps[isKept(step, events) ? "kept" : "ran"]++;
    for (const item of step.items.values()) shares.items[isKept(item, events) ? "kept" : "ran"]++;
  }
  return shares;
}
