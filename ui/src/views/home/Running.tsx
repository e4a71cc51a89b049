import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { runsQuery } from "../../api/queries.ts";
import type { ListedRun } from "../../api/types.ts";
import { plural } from "../../lib/numbers.ts";
import { stateOfRun, waitingText } from "../../lib/states.ts";
import { Panel } from "../../parts/Panel.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { State } from "../../parts/State.tsx";
import { Duration } from "../../parts/Time.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import styles from "./Running.module.css";

const SHOWN = 12;
const COUNTED = 100;

export function Running(): ReactNode {
  const live = useQuery(runsQuery({ state: ["RUNNING", "PENDING"], level: "top", limit: COUNTED }));
  const runs = live.data?.executions;
  const more = live.data?.next ? `${COUNTED} or more runs` : runs?.length ? plural(runs.length, "run") : undefined;
  return (
    <Panel title="In progress" note={more}>
      {live.isError && !runs ? (
        <Trouble what="The list of runs" error={live.error} retry={() => void live.refetch()} />
      ) : !runs ? (
        <Skeleton lines={4} />
      ) : runs.length === 0 ? (
        <p className={styles.none}>No runs in progress.</p>
      ) : (
        <ul className={styles.list}>
          {runs.slice(0, SHOWN).map((run) => (
            <Item key={run.execution_id} run={run} />
          ))}
        </ul>
      )}
      {runs && runs.length > SHOWN && (
        <Link className={styles.all} to="/runs" search={{ state: ["RUNNING", "PENDING"] }}>
          All runs in progress
        </Link>
      )}
    </Panel>
  );
}

function Item({ run }: { run: ListedRun }): ReactNode {
  const { state, text } = stateOfRun(run);
  return (
    <li className={styles.item}>
      <State state={state} text={text} />
      <Link className="cut" to="/runs/$id" params={{ id: run.execution_id }}>
        {run.name}
      </Link>
      <span className={`${styles.step} cut quiet`}>
        {[run.waiting?.step || run.current_step, waitingText(run.waiting)].filter(Boolean).join(" · ")}
      </span>
      <span className={styles.time}>
        <Duration from={run.started_at ?? run.created_at} to={null} />
      </span>
    </li>
  );
}
