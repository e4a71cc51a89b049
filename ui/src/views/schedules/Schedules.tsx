import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { CalendarPlus, History, Pause, Play, Trash2 } from "lucide-react";
import { type ReactNode, useState } from "react";
import { call } from "../../api/client.ts";
import { messageOf } from "../../api/problem.ts";
import { schedulesQuery } from "../../api/queries.ts";
import { useDenied } from "../../api/session.ts";
import type { ScheduleView } from "../../api/types.ts";
import { useCrumbs } from "../../app/crumbs.ts";
import { toast } from "../../app/toasts.ts";
import { Button } from "../../parts/Button.tsx";
import { CopyAs, Shown } from "../../parts/CopyAs.tsx";
import { Dialog } from "../../parts/Dialog.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { Field } from "../../parts/Field.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { State } from "../../parts/State.tsx";
import { Time } from "../../parts/Time.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import styles from "../workers/Work.module.css";

/** Everything that runs by the clock. */
export function SchedulesPage(): ReactNode {
  useCrumbs([{ text: "Schedules" }]);
  return (
    <div className={styles.page}>
      <h1 className="hidden-visually">Schedules</h1>
      <Schedules path="" />
    </div>
  );
}

/** The schedules, of one playbook alone if a path is given. */
export function Schedules({ path }: { path: string }): ReactNode {
  const schedules = useQuery(schedulesQuery);
  const [adding, setAdding] = useState(false);
  const denied = useDenied("POST /api/schedules");
  if (schedules.isError && !schedules.data) {
    return <Trouble what="The schedules" error={schedules.error} retry={() => void schedules.refetch()} />;
  }
  if (!schedules.data) return <Skeleton lines={5} />;
  const rows = schedules.data.schedules.filter((one) => !path || one.path === path);
  return (
    <>
      <div className={styles.tools}>
        <CopyAs actions={{ list: { cli: ["schedule", "list"], route: "GET /api/schedules" } }} />
        <Button icon={<CalendarPlus size={14} />} denied={denied} onClick={() => setAdding(true)}>
          Add schedule
        </Button>
      </div>
      {rows.length === 0 ? (
        <Empty
          title="No schedules"
          command={`arclog schedule add nightly --cron '0 2 * * *' --path ${path || "examples/hello"} --server ${window.location.origin}`}
        >
          A schedule runs a registered playbook at the times of a cron expression, in any time zone.
        </Empty>
      ) : (
        <div className={styles.tableBox} tabIndex={0}>
          <table className={styles.table}>
            <caption className="hidden-visually">Schedules</caption>
            <thead>
              <tr>
                <th scope="col">Name</th>
                <th scope="col">Schedule</th>
                <th scope="col">Playbook</th>
                <th scope="col">Next run</th>
                <th scope="col">Last run</th>
                <th scope="col">
                  <span className="hidden-visually">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {rows.map((one) => (
                <Row key={one.name} schedule={one} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {adding && <AddDialog path={path} onClose={() => setAdding(false)} />}
    </>
  );
}

function useChange(done: string, change: () => Promise<unknown>, onDone?: () => void) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: change,
    onSuccess: () => {
      void queries.invalidateQueries({ queryKey: ["schedules"] });
      toast({ kind: "done", text: done });
      onDone?.();
    },
    onError: (error) => toast({ kind: "failed", text: "The change was not made", detail: messageOf(error) }),
  });
}

function Row({ schedule }: { schedule: ScheduleView }): ReactNode {
  const { name } = schedule;
  const [asked, setAsked] = useState<"" | "backfill" | "remove">("");
  const mayPause = useDenied("POST /api/schedules/{name}/pause");
  const mayRemove = useDenied("DELETE /api/schedules/{name}");
  const toggle = useChange(schedule.paused ? `${name} resumed` : `${name} paused`, () =>
    schedule.paused
      ? call("POST /api/schedules/{name}/resume", { path: { name } })
      : call("POST /api/schedules/{name}/pause", { path: { name } }),
  );
  return (
    <tr>
      <th scope="row">
        {name} {schedule.paused && <State state="waiting" text="paused" />}
        {schedule.note && <p className="quiet small">{schedule.note}</p>}
      </th>
      <td data-label="Schedule" className="mono">
        {schedule.cron} <span className="quiet">{schedule.tz}</span>
      </td>
      <td data-label="Playbook">
        <Link to="/playbook/$" params={{ _splat: schedule.path }}>
          {schedule.path}
        </Link>
      </td>
      <td data-label="Next run">
        <Time at={schedule.next_due} focusable />
        {schedule.queued.length > 0 && <p className="quiet small">{schedule.queued.length} to catch up</p>}
      </td>
      <td data-label="Last run">
        {schedule.last_execution ? (
          <Link to="/runs/$id" params={{ id: schedule.last_execution }}>
            <Time at={schedule.last_due} />
          </Link>
        ) : (
          <span className="quiet">never</span>
        )}
      </td>
      <td className={styles.rowActions}>
        <Button
          kind="quiet"
          icon={schedule.paused ? <Play size={14} /> : <Pause size={14} />}
          denied={mayPause}
          onClick={() => toggle.mutate()}
        >
          {schedule.paused ? "Resume" : "Pause"}
        </Button>
        <Button kind="quiet" icon={<History size={14} />} denied={mayPause} onClick={() => setAsked("backfill")}>
          Backfill
        </Button>
        <Button kind="quiet" icon={<Trash2 size={14} />} denied={mayRemove} onClick={() => setAsked("remove")}>
          Remove
        </Button>
        {asked === "backfill" && <BackfillDialog name={name} onClose={() => setAsked("")} />}
        {asked === "remove" && <RemoveDialog name={name} onClose={() => setAsked("")} />}
      </td>
    </tr>
  );
}

function AddDialog({ path, onClose }: { path: string; onClose: () => void }): ReactNode {
  const [name, setName] = useState("");
  const [cron, setCron] = useState("0 2 * * *");
  const [of, setOf] = useState(path);
  const [tz, setTz] = useState(Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC");
  const body = { name, cron, path: of, tz };
  const add = useChange(`${name} is scheduled`, () => call("POST /api/schedules", { body }), onClose);
  return (
    <Dialog
      title="Add schedule"
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="main" disabled={!name || !cron || !of || add.isPending} onClick={() => add.mutate()}>
            Add
          </Button>
        </>
      }
    >
      <Field label="Name" autoFocus value={name} onChange={(event) => setName(event.target.value)} />
      <Field
        label="Playbook"
        value={of}
        onChange={(event) => setOf(event.target.value)}
        hint="The path of the playbook in the catalog."
      />
      <Field
        label="Cron expression"
        value={cron}
        onChange={(event) => setCron(event.target.value)}
        hint="Minute, hour, day of month, month, day of week. 0 2 * * * is every night at 02:00."
      />
      <Field label="Time zone" value={tz} onChange={(event) => setTz(event.target.value)} />
      <Shown
        actions={{
          add: {
            cli: ["schedule", "add", name, "--cron", cron, "--path", of, "--tz", tz],
            route: "POST /api/schedules",
            body,
          },
        }}
      />
    </Dialog>
  );
}

function BackfillDialog({ name, onClose }: { name: string; onClose: () => void }): ReactNode {
  const [from, setFrom] = useState("");
  const [to, setTo] = useState("");
  const body = { from: instant(from), to: instant(to) };
  const fill = useChange(
    `${name} catches up`,
    () => call("POST /api/schedules/{name}/backfill", { path: { name }, body }),
    onClose,
  );
  return (
    <Dialog
      title={`Backfill ${name}`}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="main" disabled={!body.from || !body.to || fill.isPending} onClick={() => fill.mutate()}>
            Backfill
          </Button>
        </>
      }
    >
      <p>Starts a run for each scheduled time in this period. Times that have already run are skipped.</p>
      <Field label="From" type="datetime-local" value={from} onChange={(event) => setFrom(event.target.value)} />
      <Field label="To" type="datetime-local" value={to} onChange={(event) => setTo(event.target.value)} />
      <Shown
        actions={{
          backfill: {
            cli: ["schedule", "backfill", name, "--from", body.from, "--to", body.to],
            route: "POST /api/schedules/{name}/backfill",
            path: { name },
            body,
          },
        }}
      />
    </Dialog>
  );
}

function RemoveDialog({ name, onClose }: { name: string; onClose: () => void }): ReactNode {
  const remove = useChange(
    `${name} is removed`,
    () => call("DELETE /api/schedules/{name}", { path: { name } }),
    onClose,
  );
  return (
    <Dialog
      title={`Remove ${name}?`}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="danger" disabled={remove.isPending} onClick={() => remove.mutate()}>
            Remove
          </Button>
        </>
      }
    >
      <p>No more runs will start. Runs that have already started are not affected.</p>
      <Shown
        actions={{
          remove: { cli: ["schedule", "rm", name], route: "DELETE /api/schedules/{name}", path: { name } },
        }}
      />
    </Dialog>
  );
}

/** A time of this browser's zone as RFC 3339; '' when it is none. */
function instant(text: string): string {
  const at = Date.parse(text);
  return Number.isNaN(at) ? "" : new Date(at).toISOString();
}
