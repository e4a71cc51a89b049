import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { KeyRound, Trash2 } from "lucide-react";
import { type ReactNode, useState } from "react";
import { call } from "../../api/client.ts";
import { messageOf } from "../../api/problem.ts";
import { auditQuery, credentialsQuery, doctorQuery, keysQuery, settingsQuery } from "../../api/queries.ts";
import { useDenied } from "../../api/session.ts";
import { useCrumbs } from "../../app/crumbs.ts";
import { toast } from "../../app/toasts.ts";
import { plural } from "../../lib/numbers.ts";
import { Alert } from "../../parts/Alert.tsx";
import { Button } from "../../parts/Button.tsx";
import { CopyAs } from "../../parts/CopyAs.tsx";
import { CopyLine } from "../../parts/CopyLine.tsx";
import { Dialog } from "../../parts/Dialog.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { Chips, Field, SearchField } from "../../parts/Field.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { State } from "../../parts/State.tsx";
import { Time } from "../../parts/Time.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import styles from "../workers/Work.module.css";
import { ReplayAll } from "./ReplayAll.tsx";

const route = getRouteApi("/settings");
const TABS = [
  ["doctor", "Health"],
  ["credentials", "Credentials"],
  ["keys", "API keys"],
  ["audit", "Audit"],
  ["settings", "All settings"],
] as const;

/** How this server is: its health, its secrets by name, its keys, who did what, and its settings. */
export function Settings(): ReactNode {
  const { tab = "doctor" } = route.useSearch();
  useCrumbs([{ text: "Settings", to: "/settings" }, { text: TABS.find(([one]) => one === tab)?.[1] ?? "" }]);
  return (
    <div className={styles.page}>
      <h1 className="hidden-visually">Settings</h1>
      <nav className={styles.tabs} aria-label="Sections">
        {TABS.map(([one, text]) => (
          <Link
            key={one}
            to="/settings"
            search={{ tab: one }}
            data-on={one === tab}
            aria-current={one === tab ? "page" : undefined}
          >
            {text}
          </Link>
        ))}
      </nav>
      {tab === "doctor" && <Doctor />}
      {tab === "credentials" && <Credentials />}
      {tab === "keys" && <Keys />}
      {tab === "audit" && <Audit />}
      {tab === "settings" && <Table />}
    </div>
  );
}

const OF_CHECK = { ok: "done", warn: "waiting", fail: "failed" } as const;

type Check = { status: string };

/** What failed comes first, then warnings. */
function byUrgency(one: Check, other: Check): number {
  const order = ["fail", "warn"];
  const rank = ({ status }: Check): number => (order.indexOf(status.toLowerCase()) + order.length + 1) % 3;
  return rank(one) - rank(other);
}

function Doctor(): ReactNode {
  const doctor = useQuery(doctorQuery);
  if (doctor.isError && !doctor.data) return <Trouble what="The server's health" error={doctor.error} />;
  if (!doctor.data) return <Skeleton lines={6} />;
  return (
    <>
      <div className={styles.tools}>
        <CopyAs actions={{ doctor: { cli: ["doctor"], route: "GET /api/doctor" } }} />
        <Button onClick={() => void doctor.refetch()}>Check again</Button>
      </div>
      <div className={styles.tableBox} tabIndex={0}>
        <table className={styles.table}>
          <caption className="hidden-visually">Health checks</caption>
          <tbody>
            {[...doctor.data.checks].sort(byUrgency).map((check) => (
              <tr key={check.name}>
                <td>
                  <State
                    state={OF_CHECK[check.status.toLowerCase() as keyof typeof OF_CHECK] ?? "queued"}
                    text={check.status}
                  />
                </td>
                <th scope="row">{check.name}</th>
                <td>
                  {check.detail}
                  {check.remedy && <p className="quiet">{check.remedy}</p>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p className="quiet small">arclog {doctor.data.version}</p>
      <ReplayAll />
    </>
  );
}

function Credentials(): ReactNode {
  const credentials = useQuery(credentialsQuery);
  if (credentials.isError && !credentials.data) return <Trouble what="The credentials" error={credentials.error} />;
  if (!credentials.data) return <Skeleton lines={4} />;
  if (!credentials.data.credentials.length) {
    return (
      <Empty title="No credentials" command={`arclog secret set NAME --server ${window.location.origin}`}>
        Names and fields of credentials are shown here, never their values.
      </Empty>
    );
  }
  return (
    <div className={styles.tableBox} tabIndex={0}>
      <table className={styles.table}>
        <caption className="hidden-visually">Credentials</caption>
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">Scope</th>
            <th scope="col">Fields</th>
            <th scope="col">Set</th>
          </tr>
        </thead>
        <tbody>
          {credentials.data.credentials.map((one) => (
            <tr key={`${one.name} ${one.scope}`}>
              <th scope="row">{one.name}</th>
              <td data-label="Scope">{one.scope}</td>
              <td data-label="Fields">{one.fields.join(", ") || "single value"}</td>
              <td data-label="Set">
                <Time at={one.set_at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Keys(): ReactNode {
  const keys = useQuery(keysQuery);
  const [making, setMaking] = useState(false);
  const denied = useDenied("POST /api/keys");
  const queries = useQueryClient();
  const revoke = useMutation({
    mutationFn: (key_id: string) => call("DELETE /api/keys/{key_id}", { path: { key_id } }),
    onSuccess: () => {
      toast({ kind: "done", text: "API key revoked" });
      void queries.invalidateQueries({ queryKey: ["keys"] });
    },
    onError: (error) => toast({ kind: "failed", text: "The key was not revoked", detail: messageOf(error) }),
  });
  if (keys.isError && !keys.data) return <Trouble what="The keys" error={keys.error} />;
  if (!keys.data) return <Skeleton lines={4} />;
  return (
    <>
      <div className={styles.tools}>
        <CopyAs actions={{ list: { cli: ["key", "list"], route: "GET /api/keys" } }} />
        <Button icon={<KeyRound size={14} />} denied={denied} onClick={() => setMaking(true)}>
          Create key
        </Button>
      </div>
      {keys.data.keys.length === 0 ? (
        <Empty title="No API keys">Once a key exists, everyone has to sign in to this server.</Empty>
      ) : (
        <div className={styles.tableBox} tabIndex={0}>
          <table className={styles.table}>
            <caption className="hidden-visually">API keys</caption>
            <thead>
              <tr>
                {["Name", "Roles", "Made", "Ends", ""].map((one) => (
                  <th key={one} scope="col">
                    {one || <span className="hidden-visually">Actions</span>}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {keys.data.keys.map((key) => (
                <tr key={key.key_id}>
                  <th scope="row">
                    {key.name} <span className="quiet mono">{key.key_id}</span>
                  </th>
                  <td data-label="Roles">{key.roles.join(", ")}</td>
                  <td data-label="Created">
                    <Time at={key.created_at} />
                  </td>
                  <td data-label="Expires">
                    {key.revoked_at ? (
                      <State state="cancelled" text="revoked" />
                    ) : key.expires_at ? (
                      <Time at={key.expires_at} />
                    ) : (
                      "never"
                    )}
                  </td>
                  <td className={styles.rowActions}>
                    {!key.revoked_at && (
                      <Button
                        kind="quiet"
                        icon={<Trash2 size={14} />}
                        denied={denied}
                        onClick={() => revoke.mutate(key.key_id)}
                      >
                        Revoke
                      </Button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {making && <MakeKey onClose={() => setMaking(false)} />}
    </>
  );
}

const ROLES = [
  ["viewer", "viewer"],
  ["operator", "operator"],
  ["engineer", "engineer"],
  ["admin", "admin"],
  ["worker", "worker"],
] as const;

function MakeKey({ onClose }: { onClose: () => void }): ReactNode {
  const [name, setName] = useState("");
  const [roles, setRoles] = useState<string[]>(["viewer"]);
  const queries = useQueryClient();
  const make = useMutation({
    mutationFn: () => call("POST /api/keys", { body: { name, roles } }),
    onSuccess: () => void queries.invalidateQueries({ queryKey: ["keys"] }),
  });
  return (
    <Dialog
      title="Create API key"
      onClose={onClose}
      footer={
        make.data ? (
          <Button kind="main" onClick={onClose}>
            Done
          </Button>
        ) : (
          <>
            <Button onClick={onClose}>Cancel</Button>
            <Button kind="main" disabled={!name || !roles.length || make.isPending} onClick={() => make.mutate()}>
              Make
            </Button>
          </>
        )
      }
    >
      {make.data ? (
        <>
          <p>Copy the key now. It will not be shown again.</p>
          <CopyLine text={make.data.key} wrap />
        </>
      ) : (
        <>
          <Field label="Name" autoFocus value={name} onChange={(event) => setName(event.target.value)} />
          <Chips label="Roles" chosen={roles} options={ROLES} onChange={setRoles} />
          {make.isError && <Alert error={make.error} />}
        </>
      )}
    </Dialog>
  );
}

function Audit(): ReactNode {
  const audit = useQuery(auditQuery);
  if (audit.isError && !audit.data) return <Trouble what="The audit log" error={audit.error} />;
  if (!audit.data) return <Skeleton lines={6} />;
  if (!audit.data.entries.length) return <Empty title="No entries yet" />;
  return (
    <div className={styles.tableBox} tabIndex={0}>
      <table className={styles.table}>
        <caption className="hidden-visually">Audit log</caption>
        <thead>
          <tr>
            {["Time", "Decision", "User", "Request", "Reason"].map((one) => (
              <th key={one} scope="col">
                {one}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {audit.data.entries.map((entry) => (
            <tr key={entry.position}>
              <td data-label="Time">
                <Time at={entry.at} />
              </td>
              <td data-label="Decision">
                <State state={entry.decision === "granted" ? "done" : "failed"} text={entry.decision} />
              </td>
              <th scope="row">{entry.principal}</th>
              <td data-label="Request" className="mono">
                {requestText(entry)}
              </td>
              <td data-label="Reason">{entry.reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Method and address, with what the address names in its place. */
function requestText({ method, route, target }: { method: string; route: string; target: string }): string {
  const left: string[] = [];
  let address = route;
  for (const part of target.split(" ").filter(Boolean)) {
    const at = part.indexOf("=");
    const place = `{${part.slice(0, at)}}`;
    if (at > 0 && address.includes(place)) address = address.replace(place, part.slice(at + 1));
    else left.push(part);
  }
  return [method, address, ...left].filter(Boolean).join(" ");
}

function valueText(value: unknown): string {
  return value === "" ? "–" : typeof value === "string" ? value : JSON.stringify(value);
}

/** Text with `code` in it. */
function Marked({ text }: { text: string }): ReactNode {
  const parts = text.split("`").map((part, index) => ({ id: `${index} ${part}`, part, isCode: index % 2 === 1 }));
  return parts.map(({ id, part, isCode }) => (isCode ? <code key={id}>{part}</code> : part));
}

function Table(): ReactNode {
  const settings = useQuery(settingsQuery);
  const [wanted, setWanted] = useState("");
  if (settings.isError && !settings.data) return <Trouble what="The settings" error={settings.error} />;
  if (!settings.data) return <Skeleton lines={8} />;
  const text = wanted.toLowerCase();
  const rows = settings.data.settings
    .map((one) => ({ ...one, changed: JSON.stringify(one.value) !== JSON.stringify(one.default) }))
    .filter((one) => !text || one.name.includes(text) || one.help.toLowerCase().includes(text))
    .sort((a, b) => Number(b.changed) - Number(a.changed));
  return (
    <>
      <div className={styles.find}>
        <SearchField label="Search settings" placeholder="Search settings" value={wanted} onChange={setWanted} />
        <span className="quiet small">{plural(rows.length, "setting")}</span>
      </div>
      <div className={styles.tableBox} tabIndex={0}>
        <table className={styles.table}>
          <caption className="hidden-visually">Settings of this server, changed ones first</caption>
          <thead>
            <tr>
              <th scope="col">Setting</th>
              <th scope="col">Value</th>
              <th scope="col">Description</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((one) => (
              <tr key={one.name}>
                <th scope="row">
                  {one.name}
                  <p className="quiet small mono">{one.variable}</p>
                </th>
                <td data-label="Value" data-changed={one.changed}>
                  <b>{valueText(one.value)}</b> <span className="quiet">{one.value === "" ? "" : one.unit}</span>
                  {one.changed && <p className="quiet small">default: {valueText(one.default)}</p>}
                </td>
                <td data-label="Description">
                  <Marked text={one.help} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}
