import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { runsQuery, summaryQuery } from "../../api/queries.ts";
import type { ListedRun } from "../../api/types.ts";
import { stateOfRun, stateOfStep } from "../../lib/states.ts";
import { spanText } from "../../lib/time.ts";
import { Empty } from "../../parts/Empty.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { State } from "../../parts/State.tsx";
import { Duration } from "../../parts/Time.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import { useRunView } from "./context.ts";
import styles from "./Run.module.css";

/** Runs that this one called; each opens in place. */
export function Children(): ReactNode {
  const { id } = useRunView();
  return (
    <div className={styles.scroll} tabIndex={0} role="group" aria-label="Child runs">
      <ChildList id={id} />
    </div>
  );
}

function ChildList({ id }: { id: string }): ReactNode {
  const children = useQuery(runsQuery({ parent: id, limit: 200 }));
  if (children.isError && !children.data) return <Trouble what="The child runs" error={children.error} />;
  if (!children.data) return <Skeleton lines={3} />;
  if (!children.data.executions.length) return <Empty title="No child runs yet" />;
  return (
    <ul>
      {children.data.executions.map((child) => (
        <Child key={child.execution_id} run={child} />
      ))}
    </ul>
  );
}

function Child({ run }: { run: ListedRun }): ReactNode {
  const [open, setOpen] = useState(false);
  const { state, text } = stateOfRun(run);
  return (
    <li className={styles.child}>
      <div>
        <button
          type="button"
          aria-expanded={open}
          aria-label={`Steps of ${run.name} ${run.execution_id}`}
          onClick={() => setOpen(!open)}
        >
          {open ? "▾" : "▸"}
        </button>
        <State state={state} text={text} />
        <Link to="/runs/$id" params={{ id: run.execution_id }} className="cut">
          {run.name} <span className="quiet">{run.execution_id}</span>
        </Link>
        <span className="quiet small">
          <Duration from={run.started_at} to={run.ended_at} />
        </span>
      </div>
      {run.error && <p className="quiet small">{run.error}</p>}
      {open && <Opened id={run.execution_id} />}
    </li>
  );
}

function Opened({ id }: { id: string }): ReactNode {
  const summary = useQuery(summaryQuery(id));
  if (!summary.data) return <Skeleton lines={2} height={1.5} />;
  return (
    <ul className={styles.childSteps}>
      {Object.entries(summary.data.steps).map(([name, step]) => (
        <li key={name}>
          <State state={stateOfStep(step.status)} text={step.status} />
          <Link to="/runs/$id" params={{ id }} search={{ step: name }}>
            {name}
          </Link>
          <span className="quiet small">{typeof step.took_ms === "number" ? spanText(step.took_ms) : ""}</span>
        </li>
      ))}
    </ul>
  );
}
