import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { CircleCheckBig } from "lucide-react";
import type { ReactNode } from "react";
import { approvalsQuery } from "../../api/queries.ts";
import { useCrumbs } from "../../app/crumbs.ts";
import { plural } from "../../lib/numbers.ts";
import { CopyAs } from "../../parts/CopyAs.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { Time } from "../../parts/Time.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import styles from "../workers/Work.module.css";
import { Decide } from "./Decide.tsx";

/** What runs wait for somebody to decide, the oldest first. */
export function Approvals(): ReactNode {
  useCrumbs([{ text: "Approvals" }]);
  const approvals = useQuery(approvalsQuery(100));
  if (approvals.isError && !approvals.data) {
    return <Trouble what="The approvals" error={approvals.error} retry={() => void approvals.refetch()} />;
  }
  return (
    <div className={styles.page}>
      <h1 className="hidden-visually">Approvals</h1>
      {!approvals.data ? (
        <Skeleton lines={5} />
      ) : approvals.data.approvals.length === 0 ? (
        <Empty title="No pending approvals" icon={<CircleCheckBig size={28} />}>
          Tasks of kind <code>approval</code>, and playbooks whose start must be approved, appear here.
        </Empty>
      ) : (
        <>
          <div className={styles.tools}>
            <p className={styles.lead}>{plural(approvals.data.approvals.length, "pending approval")}, oldest first</p>
            <CopyAs actions={{ list: { route: "GET /api/approvals" } }} />
          </div>
          <ul className={styles.cards}>
            {approvals.data.approvals.map((one) => (
              <li key={`${one.run.execution_id} ${one.key}`}>
                <div>
                  <p>
                    <b>{one.prompt || (one.step ? `Approve step ${one.step}?` : `Start ${one.run.name}?`)}</b>
                  </p>
                  <p className="quiet small">
                    <Link
                      to="/runs/$id"
                      params={{ id: one.run.execution_id }}
                      search={one.step ? { step: one.step } : {}}
                    >
                      {one.run.name}
                    </Link>
                    {one.step && ` · ${one.step}`}
                    {one.iteration && ` · item ${one.iteration}`} · requested <Time at={one.since} />
                    {one.until && (
                      <>
                        {" "}
                        · expires <Time at={one.until} />
                      </>
                    )}
                  </p>
                </div>
                <div className={styles.rowActions}>
                  <Decide approval={one} />
                </div>
              </li>
            ))}
          </ul>
        </>
      )}
    </div>
  );
}
