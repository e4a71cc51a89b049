import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { lastRunsQuery } from "../api/queries.ts";
import { isOver, stateOfRun } from "../lib/states.ts";
import { exactText, millis, spanText } from "../lib/time.ts";
import styles from "./RunBars.module.css";

/** The last runs of a playbook, oldest first: how each ended, and how long it took. */
export function RunBars({ path }: { path: string }): ReactNode {
  const runs = useQuery(lastRunsQuery(path));
  if (!runs.data) return <span className={styles.bars} />;
  const rows = runs.data.executions.toReversed();
  if (!rows.length) return <span className="quiet small">never run</span>;
  const took = rows.map((run) =>
    run.started_at && isOver(run) && run.ended_at ? millis(run.ended_at) - millis(run.started_at) : 0,
  );
  const most = Math.max(...took, 1);
  const counts = new Map<string, number>();
  for (const run of rows) counts.set(stateOfRun(run).text, (counts.get(stateOfRun(run).text) ?? 0) + 1);
  const told = [...counts].map(([text, count]) => `${count} ${text}`).join(", ");
  return (
    <Link to="/runs" search={{ path }} className={styles.bars} aria-label={`Last runs of ${path}: ${told}`}>
      {rows.map((run, index) => {
        const { state, text } = stateOfRun(run);
        const name = `${text}, ${exactText(millis(run.created_at)).slice(0, 19)}, took ${spanText(took[index] ?? 0)}`;
        return (
          <span key={run.execution_id} className={styles.bar} data-state={state} title={name}>
            <span style={{ height: `${20 + 80 * Math.sqrt((took[index] ?? 0) / most)}%` }} />
          </span>
        );
      })}
    </Link>
  );
}
