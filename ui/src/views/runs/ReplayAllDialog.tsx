import { Link } from "@tanstack/react-router";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { call } from "../../api/client.ts";
import { messageOf } from "../../api/problem.ts";
import type { RunsAsked } from "../../api/queries.ts";
import type { Listed } from "../../api/types.ts";
import type { ActionForm } from "../../lib/forms.ts";
import { countText, plural } from "../../lib/numbers.ts";
import { Banner } from "../../parts/Banner.tsx";
import { Button } from "../../parts/Button.tsx";
import { Shown } from "../../parts/CopyAs.tsx";
import { Dialog } from "../../parts/Dialog.tsx";
import styles from "./Runs.module.css";

/** Logs that the server replays at a time. */
const AT_ONCE = 2;
/** Differences that are listed; all are counted. */
const MOST_SHOWN = 100;

interface Different {
  run: Listed;
  /** the event that is decided otherwise; 0: the log could not be replayed */
  seq: number;
  text: string;
}

interface Progress {
  runs: number;
  events: number;
  different: number;
  shown: Different[];
  isOver: boolean;
  /** why it ended before the end of the list */
  problem: string;
}

const NOTHING: Progress = { runs: 0, events: 0, different: 0, shown: [], isOver: false, problem: "" };

/** Replays run after run, newest first, and reports whenever one is done. */
async function replayAll(
  asked: NonNullable<RunsAsked>,
  report: (change: (before: Progress) => Progress) => void,
  signal: AbortSignal,
): Promise<void> {
  let before = "";
  do {
    const page = await call("GET /api/executions", { query: { ...asked, ...(before ? { before } : {}) }, signal });
    const waiting = [...page.executions];
    const work = async (): Promise<void> => {
      for (let run = waiting.shift(); run && !signal.aborted; run = waiting.shift())
        await replayed(run, report, signal);
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    before = page.next ?? "";
  } while (before && !signal.aborted);
}

async function replayed(
  run: Listed,
  report: (change: (before: Progress) => Progress) => void,
  signal: AbortSignal,
): Promise<void> {
  let events = 0;
  let found: Different | null = null;
  try {
    const path = { execution_id: run.execution_id };
    const check = await call("GET /api/executions/{execution_id}/replay", { path, signal });
    events = check.events;
    if (check.difference) {
      const { seq, fields, problem } = check.difference;
      found = { run, seq, text: problem || (fields.length ? `${fields.join(", ")} differ` : "decided otherwise") };
    }
  } catch (error) {
    if (signal.aborted) return;
    found = { run, seq: 0, text: messageOf(error) };
  }
  report((before) => ({
    ...before,
    runs: before.runs + 1,
    events: before.events + events,
    different: before.different + (found ? 1 : 0),
    shown: found && before.shown.length < MOST_SHOWN ? [...before.shown, found] : before.shown,
  }));
}

/** The upgrade check: is every run of the list decided today as it was recorded? */
export function ReplayAllDialog({ asked, onClose }: { asked: NonNullable<RunsAsked>; onClose: () => void }): ReactNode {
  const [progress, setProgress] = useState<Progress | null>(null);
  const stop = useRef<AbortController | null>(null);
  useEffect(() => () => stop.current?.abort(), []);
  const start = async (): Promise<void> => {
    const mine = new AbortController();
    stop.current = mine;
    setProgress(NOTHING);
    const report = (change: (before: Progress) => Progress): void =>
      setProgress((before) => (stop.current === mine ? change(before ?? NOTHING) : before));
    let problem = "";
    try {
      await replayAll(asked, report, mine.signal);
    } catch (error) {
      if (!mine.signal.aborted) problem = messageOf(error);
    }
    report((before) => ({ ...before, isOver: true, problem: mine.signal.aborted ? "Stopped." : problem }));
  };
  const isGoing = progress !== null && !progress.isOver;
  return (
    <Dialog
      title="Replay the listed runs"
      onClose={onClose}
      wide
      footer={
        <>
          <Button onClick={onClose}>Close</Button>
          {isGoing ? (
            <Button onClick={() => stop.current?.abort()}>Stop</Button>
          ) : (
            <Button kind="main" onClick={() => void start()}>
              {progress ? "Replay again" : "Replay"}
            </Button>
          )}
        </>
      }
    >
      <p>
        Checks every recorded decision of the runs in this list, newest first, against this version of arclog: use it
        after an upgrade. Nothing is executed or written. The filters of the list choose the runs.
      </p>
      {progress && <Verdict progress={progress} onLeave={onClose} />}
      <Shown actions={formsOf(asked)} />
    </Dialog>
  );
}

function Verdict({ progress, onLeave }: { progress: Progress; onLeave: () => void }): ReactNode {
  const { runs, events, different, shown, isOver, problem } = progress;
  return (
    <>
      <Banner state={different || (isOver && problem) ? "failed" : isOver ? "done" : "running"}>
        <p role="status">
          {!isOver
            ? "Replaying … "
            : problem
              ? `${problem} `
              : runs === 0
                ? "There are no runs in this list. "
                : different
                  ? ""
                  : "All logs replay without differences. "}
          {different > 0 && `${plural(different, "run")} would be decided differently.`}
        </p>
        <p className="quiet small">
          {plural(runs, "run")} and {plural(events, "event")} checked
        </p>
      </Banner>
      {shown.length > 0 && (
        <ul className={styles.differences} aria-label="Runs that differ">
          {shown.map(({ run, seq, text }) => (
            <li key={run.execution_id}>
              <Link
                to="/runs/$id"
                params={{ id: run.execution_id }}
                search={{ tab: "history", ...(seq ? { seq } : {}) }}
                onClick={onLeave}
              >
                {run.name} {run.execution_id}
              </Link>{" "}
              {seq > 0 && <span>event {countText(seq)}: </span>}
              {text}
            </li>
          ))}
        </ul>
      )}
      {different > shown.length && <p className="quiet small">The first {countText(shown.length)} are shown.</p>}
    </>
  );
}

/** The command checks all runs since a time; where the list has other filters, each run is named. */
function formsOf({
  since,
  limit: _limit,
  level: _level,
  ...filters
}: NonNullable<RunsAsked>): Record<string, ActionForm> {
  const isAll = Object.keys(filters).length === 0;
  return {
    [isAll ? "replay (curl and Python: for each run)" : "for each run"]: {
      cli: isAll ? ["replay", "--all", ...(since ? ["--since", since] : [])] : ["replay", "ID"],
      route: "GET /api/executions/{execution_id}/replay",
      path: { execution_id: "ID" },
      python: 'client.replay("ID")',
    },
  };
}
