import { Link } from "@tanstack/react-router";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { call, serverNow } from "../../api/client.ts";
import { messageOf, Problem } from "../../api/problem.ts";
import { useDenied } from "../../api/session.ts";
import type { ListedRun } from "../../api/types.ts";
import { countText, plural } from "../../lib/numbers.ts";
import { sinceOf } from "../../lib/time.ts";
import { Banner } from "../../parts/Banner.tsx";
import { Button } from "../../parts/Button.tsx";
import { CopyAs } from "../../parts/CopyAs.tsx";
import { Select } from "../../parts/Field.tsx";
import { Panel } from "../../parts/Panel.tsx";
import styles from "./ReplayAll.module.css";

const SPANS = [
  ["24h", "Last 24 hours"],
  ["7d", "Last 7 days"],
  ["30d", "Last 30 days"],
  ["all", "All runs"],
] as const;
type Span = (typeof SPANS)[number][0];

/** Runs that are asked for at a time. */
const PAGE = 100;
/** Logs that the server replays at a time. */
const AT_ONCE = 2;
/** Differences that are listed; all are counted. */
const MOST_SHOWN = 100;

interface Different {
  run: ListedRun;
  /** the event that is decided otherwise; 0: the log could not be replayed */
  seq: number;
  text: string;
}

interface Progress {
  runs: number;
  events: number;
  different: number;
  /** logs that the server refused to replay: they are of a newer release, for example */
  refused: number;
  shown: Different[];
  isOver: boolean;
  /** why it ended before the end of the list */
  problem: string;
}

const NOTHING: Progress = { runs: 0, events: 0, different: 0, refused: 0, shown: [], isOver: false, problem: "" };

/** Replays run after run, newest first, and reports whenever one is done. */
async function replayAll(
  since: string,
  report: (change: (before: Progress) => Progress) => void,
  signal: AbortSignal,
): Promise<void> {
  let before = "";
  do {
    const page = await call("GET /api/executions", { query: { since, before, limit: PAGE }, signal });
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
  run: ListedRun,
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
      found = { run, seq, text: problem || (fields.length ? `different ${fields.join(", ")}` : "decided otherwise") };
    }
  } catch (error) {
    // A server that is away or asks to sign in says nothing about this run.
    if (!(error instanceof Problem) || ![404, 409, 422].includes(error.status)) throw error;
    found = { run, seq: 0, text: messageOf(error) };
  }
  report((before) => ({
    ...before,
    runs: before.runs + 1,
    events: before.events + events,
    different: before.different + (found?.seq ? 1 : 0),
    refused: before.refused + (found?.seq === 0 ? 1 : 0),
    shown: found && before.shown.length < MOST_SHOWN ? [...before.shown, found] : before.shown,
  }));
}

/** The upgrade check: is every recorded run decided today as it was then? */
export function ReplayAll(): ReactNode {
  const [span, setSpan] = useState<Span>("7d");
  const [progress, setProgress] = useState<Progress | null>(null);
  const stop = useRef<AbortController | null>(null);
  const denied = useDenied("GET /api/executions/{execution_id}/replay");
  useEffect(() => () => stop.current?.abort(), []);
  const since = sinceOf(span, serverNow());
  const start = async (): Promise<void> => {
    const mine = new AbortController();
    stop.current = mine;
    setProgress(NOTHING);
    const report = (change: (before: Progress) => Progress): void =>
      setProgress((before) => (stop.current === mine ? change(before ?? NOTHING) : before));
    let problem = "";
    try {
      await replayAll(since, report, mine.signal);
    } catch (error) {
      if (!mine.signal.aborted) problem = messageOf(error);
    }
    report((before) => ({ ...before, isOver: true, problem: mine.signal.aborted ? "Stopped." : problem }));
  };
  const isGoing = progress !== null && !progress.isOver;
  return (
    <Panel title="Replay recorded runs">
      <div className={styles.body}>
        <p className="quiet small">
          After an upgrade: checks every recorded decision, newest runs first, against this version of arclog. Nothing
          is executed or written.
        </p>
        <div className={styles.line}>
          <Select label="Runs to replay" value={span} options={SPANS} onChange={setSpan} />
          {isGoing ? (
            <Button onClick={() => stop.current?.abort()}>Stop</Button>
          ) : (
            <Button denied={denied} onClick={() => void start()}>
              {progress ? "Replay again" : "Replay"}
            </Button>
          )}
          <CopyAs
            actions={{
              "all runs (curl and Python: each run)": {
                cli: ["replay", "--all", ...(since ? ["--since", since] : [])],
                route: "GET /api/executions/{execution_id}/replay",
                path: { execution_id: "ID" },
                python: 'client.replay("ID")',
              },
            }}
          />
        </div>
        {progress && <Verdict progress={progress} />}
      </div>
    </Panel>
  );
}

function Verdict({ progress }: { progress: Progress }): ReactNode {
  const { runs, events, different, refused, shown, isOver, problem } = progress;
  const isGood = different + refused === 0;
  return (
    <>
      <Banner state={!isGood || (isOver && problem) ? "failed" : isOver ? "done" : "running"}>
        <p role="status">
          {!isOver
            ? "Replaying … "
            : problem
              ? `${problem} `
              : runs === 0
                ? "There are no runs to replay. "
                : isGood
                  ? "All logs replay without differences. "
                  : ""}
          {different > 0 && `${plural(different, "run")} would be decided differently. `}
          {refused > 0 && `${plural(refused, "run")} could not be replayed.`}
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
              >
                {run.name} {run.execution_id}
              </Link>{" "}
              {seq > 0 && <span>event {countText(seq)}: </span>}
              {text}
            </li>
          ))}
        </ul>
      )}
      {different + refused > shown.length && (
        <p className="quiet small">The first {countText(shown.length)} are shown.</p>
      )}
    </>
  );
}
