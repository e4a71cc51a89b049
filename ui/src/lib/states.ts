/** The states that anything here can be in, and how each is shown: never by colour alone. */
import type { ListedRun } from "../api/types.ts";
import { exactText, millis } from "./time.ts";

export const STATES = {
  queued: "queued",
  running: "running",
  done: "done",
  failed: "failed",
  waiting: "waiting",
  skipped: "skipped",
  cancelled: "cancelled",
  retrying: "retrying",
} as const;

export type State = keyof typeof STATES;

const OF_RUN: Record<string, State> = {
  PENDING: "queued",
  RUNNING: "running",
  COMPLETED: "done",
  FAILED: "failed",
  CANCELLED: "cancelled",
};

/** The state of a run in a list, and what to call it. */
export function stateOfRun(run: Pick<ListedRun, "state" | "paused" | "approvals" | "waiting">): {
  state: State;
  text: string;
} {
  if (run.paused) return { state: "waiting", text: "paused" };
  if (run.approvals && (run.state === "RUNNING" || run.state === "PENDING")) {
    return { state: "waiting", text: "needs approval" };
  }
  if (run.waiting) return { state: "waiting", text: "waiting" };
  const state = OF_RUN[run.state] ?? "queued";
  return { state, text: run.state === "COMPLETED" ? "completed" : run.state === "PENDING" ? "pending" : STATES[state] };
}

/** What a run waits for, in a few words; "" when it does not wait. */
export function waitingText(waiting: ListedRun["waiting"]): string {
  if (!waiting || waiting.what === "approval") return ""; // the state says so
  const { what, name, until, count } = waiting;
  const time = until ? exactText(millis(until)).slice(0, 16) : "";
  const texts: Record<string, string> = {
    signal: `for signal ${name}${time ? ` until ${time}` : ""}`,
    timer: `until ${time}`,
    child: "for a child run",
    retry: `for the next attempt at ${time}`,
    slot: "for a free slot",
  };
  return `${texts[what] ?? `for ${what}`}${count > 1 ? ` and ${count - 1} more` : ""}`;
}

const OF_STEP: Record<string, State> = {
  running: "running",
  done: "done",
  failed: "failed",
  skipped: "skipped",
  cancelled: "cancelled",
  scheduled: "queued",
  open: "running",
};

export function stateOfStep(status: string): State {
  return OF_STEP[status] ?? "queued";
}

export function isOver(run: Pick<ListedRun, "state">): boolean {
  return run.state === "COMPLETED" || run.state === "FAILED" || run.state === "CANCELLED";
}
