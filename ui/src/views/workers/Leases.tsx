import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { serverNow } from "../../api/client.ts";
import { leasesQuery } from "../../api/queries.ts";
import type { Lease } from "../../api/types.ts";
import { countText } from "../../lib/numbers.ts";
import { millis } from "../../lib/time.ts";
import { CopyAs } from "../../parts/CopyAs.tsx";
import { Panel } from "../../parts/Panel.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { State } from "../../parts/State.tsx";
import { Time } from "../../parts/Time.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import styles from "./Work.module.css";

const COLUMNS = ["Work", "Items", "Pool", "Worker", "Claims", "Expires"];

/** Work that workers have claimed and not finished. */
export function Leases(): ReactNode {
  const leases = useQuery(leasesQuery);
  const rows = leases.data?.leases;
  return (
    <Panel
      title="Leases"
      note="work claimed by workers; it is offered again when the lease expires"
      actions={<CopyAs actions={{ leases: { route: "GET /api/leases", python: "client.leases()" } }} />}
    >
      {leases.isError && !rows ? (
        <Trouble what="The leases" error={leases.error} />
      ) : !rows ? (
        <Skeleton lines={2} />
      ) : rows.length === 0 ? (
        <p className={styles.none}>No leases.</p>
      ) : (
        <div className={styles.tableBox} tabIndex={0}>
          <table className={styles.table}>
            <caption className="hidden-visually">Leases</caption>
            <thead>
              <tr>
                {COLUMNS.map((one) => (
                  <th key={one} scope="col">
                    {one}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((lease) => (
                <Row
                  key={`${lease.run.execution_id} ${lease.step} ${lease.step_run} ${lease.items[0]}`}
                  lease={lease}
                />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

function Row({ lease }: { lease: Lease }): ReactNode {
  const [first, last] = lease.items;
  const search = { step: lease.step, run: lease.step_run, ...(last ? { item: String(first) } : {}) };
  return (
    <tr>
      <th scope="row">
        <Link to="/runs/$id" params={{ id: lease.run.execution_id }} search={search}>
          {lease.run.name} · {lease.step}
          {lease.step_run > 1 ? ` #${lease.step_run}` : ""}
        </Link>
      </th>
      <td data-label="Items">
        {last ? (last - first > 1 ? `${countText(first)} to ${countText(last - 1)}` : countText(first)) : "–"}
      </td>
      <td data-label="Pool">{lease.pool}</td>
      <td data-label="Worker">{lease.worker_id}</td>
      <td data-label="Claims">{countText(lease.claims)}</td>
      <td data-label="Expires">
        <span className={styles.withNote}>
          <Time at={lease.until} />
          {millis(lease.until) < serverNow() && <State state="waiting" text="overdue" />}
        </span>
      </td>
    </tr>
  );
}
