import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { PowerOff } from "lucide-react";
import { type ReactNode, useState } from "react";
import { call } from "../../api/client.ts";
import { poolsQuery, resourcesQuery, stuckQuery, workersQuery } from "../../api/queries.ts";
import { useDenied } from "../../api/session.ts";
import { useCrumbs } from "../../app/crumbs.ts";
import { toast } from "../../app/toasts.ts";
import { countText } from "../../lib/numbers.ts";
import { spanText } from "../../lib/time.ts";
import { Alert } from "../../parts/Alert.tsx";
import { Button } from "../../parts/Button.tsx";
import { CopyAs, Shown } from "../../parts/CopyAs.tsx";
import { Dialog } from "../../parts/Dialog.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { Panel } from "../../parts/Panel.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { State } from "../../parts/State.tsx";
import { Time } from "../../parts/Time.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import { Charts } from "./Charts.tsx";
import { Leases } from "./Leases.tsx";
import styles from "./Work.module.css";

/** Who works, what waits and why. */
export function Work(): ReactNode {
  useCrumbs([{ text: "Work" }]);
  return (
    <div className={styles.page}>
      <h1 className="hidden-visually">Work</h1>
      <Charts />
      <Pools />
      <Pending />
      <Workers />
      <Leases />
      <Resources />
    </div>
  );
}

function Pools(): ReactNode {
  const pools = useQuery(poolsQuery);
  return (
    <Panel
      title="Pools"
      actions={<CopyAs actions={{ pools: { cli: ["pool", "list"], route: "GET /api/pools" } }} />}
      note="queues and their workers"
    >
      {pools.isError && !pools.data ? (
        <Trouble what="The pools" error={pools.error} />
      ) : !pools.data ? (
        <Skeleton lines={2} />
      ) : (
        <div className={styles.tableBox} tabIndex={0}>
          <table className={styles.table}>
            <caption className="hidden-visually">Pools</caption>
            <thead>
              <tr>
                {["Pool", "Waiting", "Oldest", "Busy", "Slots", "Workers", "Limits"].map((one) => (
                  <th key={one} scope="col">
                    {one}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {pools.data.pools.map((pool) => (
                <tr key={pool.name}>
                  <th scope="row">{pool.name}</th>
                  <td data-label="Waiting">{countText(pool.waiting)}</td>
                  <td data-label="Oldest">{pool.waiting ? spanText(pool.oldest_s * 1000) : "–"}</td>
                  <td data-label="Busy">{countText(pool.busy)}</td>
                  <td data-label="Slots">{countText(pool.slots)}</td>
                  <td data-label="Workers">
                    <span className={styles.withNote}>
                      {countText(pool.workers)}
                      {pool.waiting > 0 && pool.workers === 0 && <State state="waiting" text="no workers" />}
                    </span>
                  </td>
                  <td data-label="Limits">
                    {pool.limits.map((one) => `${one.tenant || "all"}: ${one.concurrency}`).join(", ") || "–"}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

/** Work that nobody has taken for a while, with the sentence of `arclog why`. */
function Pending(): ReactNode {
  const stuck = useQuery(stuckQuery);
  const rows = stuck.data?.runs ?? [];
  if (!rows.length) return null;
  return (
    <Panel
      title="Waiting for a worker"
      note="the oldest work of each queue and why it is waiting"
      actions={<CopyAs actions={{ stuck: { route: "GET /api/stuck", python: "client.stuck()" } }} />}
    >
      <div className={styles.tableBox} tabIndex={0}>
        <table className={styles.table}>
          <caption className="hidden-visually">Waiting work</caption>
          <thead>
            <tr>
              {["Work", "Pool", "Since", "Why"].map((one) => (
                <th key={one} scope="col">
                  {one}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((one) => (
              <tr key={`${one.run.execution_id} ${one.step}`}>
                <th scope="row">
                  <Link to="/runs/$id" params={{ id: one.run.execution_id }} search={{ step: one.step }}>
                    {one.run.name} · {one.step}
                  </Link>
                </th>
                <td data-label="Pool">{one.pool}</td>
                <td data-label="Since">
                  <Time at={one.since} />
                </td>
                <td data-label="Why">{one.why}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function Workers(): ReactNode {
  const workers = useQuery(workersQuery);
  const [asked, setAsked] = useState<string | null>(null);
  const denied = useDenied("POST /api/workers/drain");
  return (
    <Panel title="Workers" actions={<CopyAs actions={{ workers: { cli: ["workers"], route: "GET /api/workers" } }} />}>
      {workers.isError && !workers.data ? (
        <Trouble what="The workers" error={workers.error} />
      ) : !workers.data ? (
        <Skeleton lines={2} />
      ) : workers.data.workers.length === 0 ? (
        <Empty title="No workers" command={`arclog worker --server ${window.location.origin}`}>
          Work stays queued until a worker connects.
        </Empty>
      ) : (
        <div className={styles.tableBox} tabIndex={0}>
          <table className={styles.table}>
            <caption className="hidden-visually">Workers</caption>
            <thead>
              <tr>
                {["Worker", "State", "Busy", "Pools", "Kinds", "Last seen", ""].map((one) => (
                  <th key={one} scope="col">
                    {one || <span className="hidden-visually">Actions</span>}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {workers.data.workers.map((worker) => (
                <tr key={worker.worker_id}>
                  <th scope="row">
                    <span className={styles.fixed}>{worker.worker_id}</span>
                    <p className="quiet small">
                      {worker.host} {worker.version}
                    </p>
                  </th>
                  <td data-label="State">{worker.state}</td>
                  <td data-label="Busy" className={styles.fixed}>
                    {countText(worker.busy)} of {countText(worker.slots)}
                  </td>
                  <td data-label="Pools">{worker.pools.join(", ") || "all"}</td>
                  <td data-label="Kinds">{worker.kinds.join(", ")}</td>
                  <td data-label="Last seen">
                    <Time at={worker.seen_at} />
                  </td>
                  <td className={styles.rowActions}>
                    <Button
                      kind="quiet"
                      icon={<PowerOff size={14} />}
                      denied={denied}
                      onClick={() => setAsked(worker.worker_id)}
                    >
                      Drain
                    </Button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {asked !== null && <DrainDialog worker={asked} onClose={() => setAsked(null)} />}
    </Panel>
  );
}

function DrainDialog({ worker, onClose }: { worker: string; onClose: () => void }): ReactNode {
  const queries = useQueryClient();
  const body = { worker_id: worker };
  const drain = useMutation({
    mutationFn: () => call("POST /api/workers/drain", { body }),
    onSuccess: () => {
      void queries.invalidateQueries({ queryKey: ["workers"] });
      toast({ kind: "done", text: `${worker} is draining` });
      onClose();
    },
  });
  return (
    <Dialog
      title={`Drain ${worker}?`}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="danger" disabled={drain.isPending} onClick={() => drain.mutate()}>
            Drain
          </Button>
        </>
      }
    >
      <p>Starts no new tasks; running tasks finish first. Then the worker exits.</p>
      {drain.isError && <Alert error={drain.error} />}
      <Shown actions={{ drain: { cli: ["worker", "drain", worker], route: "POST /api/workers/drain", body } }} />
    </Dialog>
  );
}

function Resources(): ReactNode {
  const resources = useQuery(resourcesQuery);
  const rows = resources.data?.resources ?? [];
  if (!rows.length) return null;
  return (
    <Panel title="Resources" note="limits on external systems">
      <div className={styles.tableBox} tabIndex={0}>
        <table className={styles.table}>
          <caption className="hidden-visually">Resources</caption>
          <tbody>
            {rows.map((one) => (
              <tr key={one.name}>
                <th scope="row">{one.name}</th>
                <td>{one.rate || "no rate"}</td>
                <td>{one.concurrency === null ? "unlimited" : `${countText(one.concurrency)} at a time`}</td>
                <td>{countText(one.held)} held</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}
