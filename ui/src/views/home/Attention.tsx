import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { approvalsQuery, failingQuery, stuckQuery } from "../../api/queries.ts";
import type { Approval, FailingPlaybook, StuckRun } from "../../api/types.ts";
import { plural } from "../../lib/numbers.ts";
import { Panel } from "../../parts/Panel.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { StateGlyph } from "../../parts/State.tsx";
import { Time } from "../../parts/Time.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import { Decide } from "../approvals/Decide.tsx";
import styles from "./Home.module.css";

/** As many of each kind as are looked through at a glance; the rest is one click away. */
const MOST = 5;

export function Attention(): ReactNode {
  const failing = useQuery(failingQuery);
  const stuck = useQuery(stuckQuery);
  const approvals = useQuery(approvalsQuery(MOST + 1));
  const queries = [failing, stuck, approvals];
  const broken = queries.find((one) => one.isError && !one.data);
  const isReady = queries.every((one) => one.data);
  const asked = approvals.data?.approvals ?? [];
  // A run that was imported to be looked at failed elsewhere.
  const failed = failing.data?.playbooks.filter((one) => !one.last.imported) ?? [];
  const count = failed.length + (stuck.data?.runs.length ?? 0) + asked.length;
  return (
    <Panel title="Needs attention" note={isReady && count > 0 ? plural(count, "item") : undefined}>
      {broken ? (
        <Trouble what="What needs attention" error={broken.error} retry={() => void broken.refetch()} />
      ) : !isReady ? (
        <Skeleton lines={3} height={3} />
      ) : count === 0 ? (
        <p className={styles.calm}>
          <StateGlyph state="done" size={16} />
          No failing playbooks, stuck runs or pending approvals.
        </p>
      ) : (
        <ul>
          {asked.slice(0, MOST).map((one) => (
            <ApprovalItem key={`${one.run.execution_id} ${one.key}`} approval={one} />
          ))}
          {stuck.data?.runs.slice(0, MOST).map((one) => (
            <StuckItem key={`${one.run.execution_id} ${one.step}`} stuck={one} />
          ))}
          {failed.slice(0, MOST).map((one) => (
            <FailingItem key={one.path} failing={one} />
          ))}
        </ul>
      )}
      {asked.length > MOST && (
        <Link className={styles.all} to="/approvals">
          All approvals
        </Link>
      )}
      {failed.length > MOST && (
        <Link className={styles.all} to="/runs" search={{ state: ["FAILED"] }}>
          All failed runs
        </Link>
      )}
    </Panel>
  );
}

function FailingItem({ failing }: { failing: FailingPlaybook }): ReactNode {
  const { last, failures } = failing;
  return (
    <li className={styles.item}>
      <StateGlyph state="failed" size={16} />
      <div className={styles.what}>
        <Link to="/runs/$id" params={{ id: last.execution_id }}>
          {failing.name}
        </Link>
        <span className="quiet small">
          {failures > 1 ? (
            <Link to="/runs" search={{ path: failing.path, state: ["FAILED"] }}>
              failed {failures >= 100 ? "100 times or more" : `${failures} times`} in a row
            </Link>
          ) : (
            "failed"
          )}
        </span>
      </div>
      <span className={styles.when}>
        <Time at={last.ended_at} />
      </span>
      <p className={styles.more}>{last.error ?? "no reason given"}</p>
    </li>
  );
}

function StuckItem({ stuck }: { stuck: StuckRun }): ReactNode {
  return (
    <li className={styles.item}>
      <StateGlyph state="retrying" size={16} />
      <div className={styles.what}>
        <Link to="/runs/$id" params={{ id: stuck.run.execution_id }}>
          {stuck.run.name}
        </Link>
        <span className="quiet small">stuck</span>
      </div>
      <span className={styles.when}>
        <Time at={stuck.since} />
      </span>
      <p className={styles.more}>{stuck.why}</p>
    </li>
  );
}

function ApprovalItem({ approval }: { approval: Approval }): ReactNode {
  const where = approval.step
    ? `step ${approval.step}${approval.iteration ? `, item ${approval.iteration}` : ""}`
    : "to start";
  return (
    <li className={styles.item}>
      <StateGlyph state="waiting" size={16} />
      <div className={styles.what}>
        <Link to="/runs/$id" params={{ id: approval.run.execution_id }}>
          {approval.run.name}
        </Link>
        <span className="quiet small">
          {approval.step ? `waiting for approval · ${where}` : "waiting for approval to start"}
        </span>
      </div>
      <span className={styles.when}>
        <Time at={approval.since} />
      </span>
      {approval.prompt && <p className={styles.more}>{approval.prompt}</p>}
      <div className={styles.act}>
        <Decide approval={approval} />
      </div>
    </li>
  );
}
