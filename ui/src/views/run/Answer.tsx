import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { approvalsOfQuery } from "../../api/queries.ts";
import type { Cause, ListedRun, Why } from "../../api/types.ts";
import { isOver, stateOfRun } from "../../lib/states.ts";
import { Banner } from "../../parts/Banner.tsx";
import { Button } from "../../parts/Button.tsx";
import { Clamped } from "../../parts/Clamped.tsx";
import { StateGlyph } from "../../parts/State.tsx";
import { Decide } from "../approvals/Decide.tsx";
import type { Selection } from "./context.ts";
import styles from "./Run.module.css";

interface Props {
  run: ListedRun;
  why: Why;
  select: (change: Selection) => void;
}

/** The first question of who opens a run: why did it fail, or what does it wait for? */
export function Answer({ run, why, select }: Props): ReactNode {
  if (why.cause) return <Failed run={run} cause={why.cause} select={select} />;
  if (isOver(run)) {
    if (run.error) {
      return (
        <Banner state="failed">
          <Clamped>{run.error}</Clamped>
        </Banner>
      );
    }
    const [first] = why.problems;
    return first ? (
      <Banner
        state="waiting"
        icon={<StateGlyph state="failed" size={16} />}
        actions={<Button onClick={() => select({ step: first.step, tab: "items" })}>Show items</Button>}
      >
        {why.problems.map((problem) => problem.text).join("; ")}
      </Banner>
    ) : null;
  }
  const { state } = stateOfRun(run);
  const more = why.waits.length - 1;
  return (
    <Banner
      state={state === "waiting" ? "waiting" : "running"}
      actions={run.approvals ? <NextApproval id={run.execution_id} /> : undefined}
    >
      <p>{why.summary}</p>
      {more > 0 && <p className="quiet small">and {more} more</p>}
    </Banner>
  );
}

function Failed({
  run,
  cause,
  select,
}: {
  run: ListedRun;
  cause: Cause;
  select: (change: Selection) => void;
}): ReactNode {
  const elsewhere = cause.execution_id !== "" && cause.execution_id !== run.execution_id;
  const where = [
    ...cause.via,
    cause.step,
    cause.iteration ? `item ${cause.iteration}` : "",
    cause.task ? `task ${cause.task}` : "",
    cause.attempt > 1 ? `attempt ${cause.attempt}` : "",
  ].filter(Boolean);
  const place: Selection = {
    seq: cause.seq || undefined,
    step: cause.step || undefined,
    run: cause.step_run > 1 ? cause.step_run : undefined,
    item: cause.iteration || undefined,
  };
  return (
    <Banner
      state="failed"
      actions={
        elsewhere ? (
          <Link to="/runs/$id" params={{ id: cause.execution_id }} search={place}>
            Open the child run
          </Link>
        ) : (
          <>
            <Button onClick={() => select({ ...place, tab: "events" })}>Show event</Button>
            <Button onClick={() => select({ ...place, seq: Math.max(cause.seq - 1, 0) || undefined, tab: "data" })}>
              Data before
            </Button>
            {cause.line > 0 && (
              <Button onClick={() => select({ ...place, tab: "source" })}>Source line {cause.line}</Button>
            )}
          </>
        )
      }
    >
      <Clamped>
        {where.length > 0 && <b>{where.join(" → ")}: </b>}
        {cause.message}
      </Clamped>
      <p className="quiet small">
        {[cause.kind, cause.code ?? "", cause.rule, cause.at ? `${cause.file || "playbook"}:${cause.line}` : ""]
          .filter(Boolean)
          .join(" · ")}
      </p>
      {cause.source && <pre className={styles.causeLine}>{cause.source}</pre>}
    </Banner>
  );
}

function NextApproval({ id }: { id: string }): ReactNode {
  const approvals = useQuery(approvalsOfQuery(id));
  const [first] = approvals.data ?? [];
  return first ? <Decide approval={first} /> : null;
}
