import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { GitCompareArrows } from "lucide-react";
import type { ReactNode } from "react";
import { eventQuery, runsQuery } from "../../api/queries.ts";
import type { ListedRun } from "../../api/types.ts";
import { isOver, stateOfRun } from "../../lib/states.ts";
import { CopyAs } from "../../parts/CopyAs.tsx";
import { CopyButton } from "../../parts/CopyLine.tsx";
import { State } from "../../parts/State.tsx";
import { Duration, Time } from "../../parts/Time.tsx";
import { Continue, OriginFact } from "./Continue.tsx";
import type { Selection } from "./context.ts";
import styles from "./Run.module.css";
import { Steer } from "./Steer.tsx";
import type { StepSpan } from "./spans.ts";

interface Props {
  run: ListedRun;
  selection: Selection;
  steps: readonly StepSpan[];
}

/** Which run this is, how it ended, and what can be done with it. */
export function Head({ run, selection, steps }: Props): ReactNode {
  const { state, text } = stateOfRun(run);
  const id = run.execution_id;
  return (
    <header className={styles.head}>
      <div className={styles.title}>
        <State state={state} text={text} badge />
        <h1 className="cut">{run.name}</h1>
        <span className="quiet">v{run.version}</span>
        {run.imported && <State state="queued" text="imported, read-only" badge />}
      </div>
      <div className={styles.actions}>
        <Link className={styles.linkButton} to="/runs/compare" search={{ b: id }}>
          <GitCompareArrows size={14} /> Compare
        </Link>
        <CopyAs
          actions={{
            show: {
              cli: ["show", id],
              route: "GET /api/executions/{execution_id}",
              path: { execution_id: id },
              python: `client.summary("${id}")`,
            },
            follow: {
              cli: ["events", id, "--follow"],
              route: "GET /api/executions/{execution_id}/events/stream",
              path: { execution_id: id },
              python: `list(client.follow("${id}"))`,
            },
          }}
        />
        <Continue run={run} selection={selection} />
        <Steer run={run} />
      </div>
      <dl className={styles.facts}>
        <div>
          <dt>Started</dt>
          <dd>
            <Time at={run.started_at} focusable />
          </dd>
        </div>
        <div>
          <dt>Duration</dt>
          <dd>
            <Duration from={run.started_at} to={isOver(run) ? run.ended_at : null} />
          </dd>
        </div>
        <div>
          <dt>Playbook</dt>
          <dd>
            <Link to="/playbook/$" params={{ _splat: run.path }}>
              {run.path}
            </Link>
          </dd>
        </div>
        <OriginFact id={id} steps={steps} />
        <ForksFact id={id} />
        {run.parent && (
          <div>
            <dt>Parent</dt>
            <dd>
              <Link to="/runs/$id" params={{ id: run.parent }}>
                {run.parent}
              </Link>
            </dd>
          </div>
        )}
        <ScheduleFact id={id} />
        <div>
          <dt>ID</dt>
          <dd className={styles.id}>
            <span className="mono">{id}</span>
            <CopyButton text={id} label="Copy ID" />
          </dd>
        </div>
      </dl>
    </header>
  );
}

const MOST_FORKS = 20;

/** How many runs were made from this one. */
function ForksFact({ id }: { id: string }): ReactNode {
  const { data } = useQuery({ ...runsQuery({ origin: id, limit: MOST_FORKS }), refetchInterval: false });
  const count = data?.executions.length ?? 0;
  if (!count) return null;
  return (
    <div>
      <dt>Retries and forks</dt>
      <dd>
        <Link to="/runs" search={{ origin: id }}>
          {count}
          {data?.next ? " or more" : ""}
        </Link>
      </dd>
    </div>
  );
}

/** The schedule that started a run: it is in the workload of the request. */
function ScheduleFact({ id }: { id: string }): ReactNode {
  const { data: requested } = useQuery(eventQuery(id, 1));
  const workload = requested?.payload?.workload as Record<string, unknown> | undefined;
  const schedule = workload?.schedule as Record<string, unknown> | undefined;
  if (typeof schedule?.name !== "string" || typeof schedule.due !== "string") return null;
  return (
    <div>
      <dt>Schedule</dt>
      <dd>
        <Link to="/schedules">{schedule.name}</Link>
      </dd>
    </div>
  );
}
