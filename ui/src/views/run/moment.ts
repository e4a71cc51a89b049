/** The run as it was after any of its events, folded from the outline: fast enough to be dragged through. */
import type { State } from "../../lib/states.ts";
import { type More, NO_MORE, type RunLog } from "./log.ts";

export interface StepNow {
  state: State;
  runs: number;
  /** step runs that are open */
  open: number;
  /** of a loop */
  total: number;
  ok: number;
  failed: number;
  items: number;
  /** of a step that waits */
  wait: StepWait | null;
}

/** What a step waits for; its task's kind says whether that is a time, a signal, an approval or a called run. */
export interface StepWait {
  task: string;
  /** milliseconds since 1970 */
  until: number | null;
  child: string;
}

export class Moment {
  seq = 0;
  steps = new Map<string, StepNow>();
  /** place by token */
  tokens = new Map<number, string>();
  /** how often each arc was taken, by place */
  taken = new Map<string, number>();
  paused = false;
  over = false;

  step(name: string): StepNow {
    let step = this.steps.get(name);
    if (!step) {
      step = { state: "queued", runs: 0, open: 0, total: 0, ok: 0, failed: 0, items: 0, wait: null };
      this.steps.set(name, step);
    }
    return step;
  }

  copy(): Moment {
    const other = new Moment();
    other.seq = this.seq;
    other.steps = new Map([...this.steps].map(([name, step]) => [name, { ...step }]));
    other.tokens = new Map(this.tokens);
    other.taken = new Map(this.taken);
    other.paused = this.paused;
    other.over = this.over;
    return other;
  }

  /** Go on by one event. */
  apply(log: RunLog): void {
    const seq = ++this.seq;
    const { type, step, task } = log.kindOf(seq);
    const more = log.more.get(seq) ?? NO_MORE;
    switch (type) {
      case "command.completed":
        if (more.waits) this.#waits(this.step(step), task, more);
        break;
      case "workflow.started":
        if (more.token !== undefined) this.tokens.set(more.token, "entry");
        break;
      case "step.scheduled": {
        for (const token of more.tokens ?? []) this.tokens.delete(token);
        const now = this.step(step);
        now.state = "queued";
        now.runs++;
        now.open++;
        now.total += more.total ?? 0;
        break;
      }
      case "step.started":
      case "task.started":
      case "task.attempt.started":
        this.#runs(this.step(step));
        break;
      case "command.issued":
      case "task.done":
      case "task.failed":
        if (this.steps.get(step)?.wait) this.#runs(this.step(step));
        break;
      case "step.done":
      case "step.failed": {
        const now = this.step(step);
        now.wait = null;
        now.open--;
        now.state = now.open > 0 ? "running" : type === "step.done" ? "done" : "failed";
        break;
      }
      case "policy.admit.evaluated":
        if (more.allowed === false && !this.step(step).runs) this.step(step).state = "skipped";
        break;
      case "policy.task.evaluated":
        if (more.action?.do === "retry") this.step(step).state = "retrying";
        break;
      case "loop.started":
        if (log.itemOf(seq) === "") this.step(step).total ||= more.total ?? 0;
        break;
      case "loop.iteration.started":
        this.#item(log, seq, step, "items", 1);
        this.step(step).state = "running";
        break;
      case "loop.iteration.done":
        this.#item(log, seq, step, "ok", 1);
        this.#item(log, seq, step, "items", -1);
        break;
      case "loop.iteration.failed":
        this.#item(log, seq, step, "failed", 1);
        this.#item(log, seq, step, "items", -1);
        break;
      case "next.evaluated":
        for (const arc of more.selected ?? []) {
          if (arc.arc === undefined) continue;
          const place = `arc:${step}:${arc.arc}`;
          this.taken.set(place, (this.taken.get(place) ?? 0) + 1);
          if (arc.token !== undefined) this.tokens.set(arc.token, place);
        }
        break;
      case "playbook.paused":
        this.paused = true;
        break;
      case "playbook.resumed":
        this.paused = false;
        break;
      case "playbook.finished":
      case "execution.cancelled":
        this.over = true;
        for (const now of this.steps.values()) {
          if (now.open > 0 || now.state === "running") now.state = "cancelled";
          now.wait = null;
        }
        break;
    }
  }

  /** A loop goes on with its other items; a retry is shown as one. */
  #waits(now: StepNow, task: string, more: More): void {
    if (now.total || now.state === "retrying") return;
    now.state = "waiting";
    now.wait = { task, until: more.until ? more.until / 1000 : null, child: more.child ?? "" };
  }

  #runs(now: StepNow): void {
    now.state = "running";
    now.wait = null;
  }

  /** Items of nested loops are counted by the outermost one. */
  #item(log: RunLog, seq: number, step: string, what: "ok" | "failed" | "items", by: number): void {
    if (!log.itemOf(seq).includes(".")) this.step(step)[what] += by;
  }
}

const EVERY = 1000;

/** Moments by seq, with a copy kept of every thousandth. */
export class Moments {
  readonly #log: RunLog;
  readonly #kept: Moment[] = [new Moment()];
  #last = new Moment();

  constructor(log: RunLog) {
    this.#log = log;
  }

  at(seq: number): Moment {
    const wanted = Math.max(0, Math.min(seq, this.#log.length));
    const nearest = this.#kept[Math.min(Math.floor(wanted / EVERY), this.#kept.length - 1)] ?? new Moment();
    const from = this.#last.seq <= wanted && this.#last.seq >= nearest.seq ? this.#last : nearest;
    const moment = from.copy();
    while (moment.seq < wanted) {
      moment.apply(this.#log);
      if (moment.seq % EVERY === 0 && this.#kept.length === moment.seq / EVERY) this.#kept.push(moment.copy());
    }
    this.#last = moment;
    return moment;
  }
}
