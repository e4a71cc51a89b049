import { keepPreviousData, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { eventQuery, stateQuery } from "../../api/queries.ts";
import type { StateView } from "../../api/types.ts";
import { differences, shortText } from "../../lib/diff.ts";
import { countText } from "../../lib/numbers.ts";
import { laidOver } from "../../lib/plan.ts";
import { useRested } from "../../lib/rested.ts";
import { AskButton, Json } from "../../parts/Json.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import { useMoment, useRunView } from "./context.ts";
import styles from "./Run.module.css";

/** ctx, tokens, loops, joins and open work after the event that is shown, and the workload; with a mark, what changed since. */
export function Data(): ReactNode {
  const { id, log, run, plan, selection, select } = useRunView();
  const ask = (value: string): void => select({ tab: "lineage", value });
  const seq = useRested(useMoment().seq ?? log.length);
  const state = useQuery({ ...stateQuery(id, seq), enabled: seq > 0, placeholderData: keepPreviousData });
  const from = selection.from;
  const before = useQuery({ ...stateQuery(id, from ?? 0), enabled: from !== undefined });
  const requested = useQuery({ ...eventQuery(id, 1), enabled: log.length > 0 });
  if (state.isError && !state.data) {
    return <Trouble what="The state" error={state.error} retry={() => void state.refetch()} />;
  }
  if (!state.data) return <Skeleton lines={8} />;
  const now = state.data;
  const given = (requested.data?.payload?.workload ?? {}) as Record<string, unknown>;
  const workload = laidOver(plan?.workload ?? {}, given);
  return (
    <div className={styles.scroll} tabIndex={0} role="group" aria-label="Data of the run">
      {from !== undefined && before.data && <Changes before={before.data} after={now} />}
      <section className={styles.block}>
        <h3>ctx</h3>
        <Json value={now.ctx} label="ctx" origin={{ path: "ctx", ask }} />
      </section>
      {now.tokens.length > 0 && (
        <section className={styles.block}>
          <h3>Tokens</h3>
          <ul className={styles.plainList}>
            {now.tokens.map((token) => (
              <li key={token.id}>
                {token.id} at {token.place}, on its way to {token.step}
              </li>
            ))}
          </ul>
        </section>
      )}
      {now.step_runs.length > 0 && (
        <section className={styles.block}>
          <h3>Open work</h3>
          <ul className={styles.plainList}>
            {now.step_runs.map((one) => (
              <li key={`${one.step} ${one.run}`}>
                <b>{one.step}</b> {one.run > 1 && `#${one.run} `}
                {one.status}
                {one.loop &&
                  `: ${countText(one.loop.ok)} ok, ${countText(one.loop.failed)} failed, ${countText(one.loop.open.length)} under way of ${countText(one.loop.total)}`}
                {one.tasks
                  .filter((task) => task.task)
                  .slice(0, 20)
                  .map((task) => (
                    <span key={`${task.task} ${JSON.stringify(task.iter)}`} className="quiet">
                      {" "}
                      · {task.task} attempt {task.attempt}
                      {task.due ? `, again at ${task.due}` : ""}
                    </span>
                  ))}
              </li>
            ))}
          </ul>
        </section>
      )}
      {(now.result !== null || now.error) && (
        <section className={styles.block}>
          <h3>
            {now.error ? "Error" : "Result"}
            {!now.error && <AskButton path="result" ask={ask} />}
          </h3>
          {now.error ? (
            <Json value={now.error} label="Error" />
          ) : (
            <Json value={now.result} label="Result" origin={{ path: "result", ask }} />
          )}
        </section>
      )}
      <section className={styles.block}>
        <h3>Workload</h3>
        <Json value={workload} label="Workload" origin={{ path: "workload", ask }} />
      </section>
      <section className={styles.block}>
        <h3>Steps</h3>
        <Json value={now.steps} label="Steps" />
      </section>
      <p className="quiet small">
        As of seq {countText(now.at)} of {countText(now.head)}: arclog state {run.execution_id} --at {now.at}
      </p>
    </div>
  );
}

function Changes({ before, after }: { before: StateView; after: StateView }): ReactNode {
  const pick = (state: StateView) => ({
    state: state.state,
    ctx: state.ctx,
    steps: state.steps,
    tokens: Object.fromEntries(state.tokens.map((token) => [token.id, token.place])),
    work: Object.fromEntries(state.step_runs.map((one) => [`${one.step} #${one.run}`, one.status])),
  });
  const found = differences(pick(before), pick(after));
  return (
    <section className={styles.block}>
      <h3>
        Changes from event {countText(before.at)} to {countText(after.at)}
      </h3>
      {found.length === 0 && <p className="quiet">No changes.</p>}
      {found.length > 0 && (
        <table className={styles.changes}>
          <thead>
            <tr>
              <th scope="col">Path</th>
              <th scope="col">Before</th>
              <th scope="col">After</th>
            </tr>
          </thead>
          <tbody>
            {found.map((one) => (
              <tr key={one.path}>
                <td className="mono">{one.path}</td>
                <td className="mono">{shortText(one.before)}</td>
                <td className="mono">{shortText(one.after)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
