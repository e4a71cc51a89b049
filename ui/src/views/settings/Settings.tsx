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

const route = getRouteApi("/settings");
const TABS = [
  ["doctor", "Health"],
  ["credentials", "Credentials"],
  ["keys", "API keys"],
  ["audit", "Audit"],
  ["settings", "Settings"],
] as const;

/** How this server is: its health, its secrets by name, its keys, who did what, and its settings. */
export function Settings(): ReactNode {
  const { tab = "doctor" } = route.useSearch();
  useCrumbs([{ text: "Settings", to: "/settings" }, { text: TABS.find(([one]) => one === tab)?.[1] ?? "" }]);
  return (
    <div className={styles.page}>
      <h1 className="hidden-visually">Settings</h1>
      <nav className={styles.tabs} aria-label="Parts of the settings">
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

function Doctor(): ReactNode {
  const doctor = useQuery(doctorQuery);
  if (doctor.isError && !doctor.data) return <Trouble what="The server's health" error={doctor.error} />;
  if (!doctor.data) return <Skeleton lines={6} />;
  return (
    <>
      <div className={styles.tools}>
        <CopyAs actions={{ doctor: { cli: ["doctor"], route: "GET /api/doctor" } }} />
        <Button onClick={() => void doctor.refetch()}>Look again</Button>
      </div>
      <div className={styles.tableBox} tabIndex={0}>
        <table className={styles.table}>
          <caption className="hidden-visually">Health checks</caption>
          <tbody>
            {doctor.data.checks.map((check) => (
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
    </>
  );
}

function Credentials(): ReactNode {
  const credentials = useQuery(credentialsQuery);
  if (credentials.isError && !credentials.data) return <Trouble what="The credentials" error={credentials.error} />;
  if (!credentials.data) return <Skeleton lines={4} />;
  if (!credentials.data.credentials.length) {
    return (
      <Empty title="No credential is kept here" command={`arclog secret set NAME --server ${window.location.origin}`}>
        Their names and fields are shown here, never their values.
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
              <td data-label="Fields">{one.fields.join(", ") || "a text"}</td>
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
      toast({ kind: "done", text: "The key is revoked" });
      void queries.invalidateQueries({ queryKey: ["keys"] });
    },
    onError: (error) => toast({ kind: "failed", text: "It was not revoked", detail: messageOf(error) }),
  });
  if (keys.isError && !keys.data) return <Trouble what="The keys" error={keys.error} />;
  if (!keys.data) return <Skeleton lines={4} />;
  return (
    <>
      <div className={styles.tools}>
        <CopyAs actions={{ list: { cli: ["key", "list"], route: "GET /api/keys" } }} />
        <Button icon={<KeyRound size={14} />} denied={denied} onClick={() => setMaking(true)}>
          Make a key
        </Button>
      </div>
      {keys.data.keys.length === 0 ? (
        <Empty title="There is no API key">As soon as there is one, this server asks who somebody is.</Empty>
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
                  <td data-label="Made">
                    <Time at={key.created_at} />
                  </td>
                  <td data-label="Ends">
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
      title="Make an API key"
      onClose={onClose}
      footer={
        make.data ? (
          <Button kind="main" onClick={onClose}>
            It is written down
          </Button>
        ) : (
          <>
            <Button onClick={onClose}>Not now</Button>
            <Button kind="main" disabled={!name || !roles.length || make.isPending} onClick={() => make.mutate()}>
              Make
            </Button>
          </>
        )
      }
    >
      {make.data ? (
        <>
          <p>This is shown once. Keep it where secrets are kept.</p>
          <CopyLine text={make.data.key} wrap />
        </>
      ) : (
        <>
          <Field label="Name" autoFocus value={name} onChange={(event) => setName(event.target.value)} />
          <Chips label="Roles" chosen={roles} options={ROLES} onChange={setRoles} />
          {make.isError && <p role="alert">{messageOf(make.error)}</p>}
        </>
      )}
    </Dialog>
  );
}

function Audit(): ReactNode {
  const audit = useQuery(auditQuery);
  if (audit.isError && !audit.data) return <Trouble what="The audit log" error={audit.error} />;
  if (!audit.data) return <Skeleton lines={6} />;
  if (!audit.data.entries.length) return <Empty title="Nothing was granted or denied yet" />;
  return (
    <div className={styles.tableBox} tabIndex={0}>
      <table className={styles.table}>
        <caption className="hidden-visually">Audit log</caption>
        <thead>
          <tr>
            {["When", "Decision", "Who", "What", "Why"].map((one) => (
              <th key={one} scope="col">
                {one}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {audit.data.entries.map((entry) => (
            <tr key={entry.position}>
              <td data-label="When">
                <Time at={entry.at} />
              </td>
              <td data-label="Decision">
                <State state={entry.decision === "granted" ? "done" : "failed"} text={entry.decision} />
              </td>
              <th scope="row">{entry.principal}</th>
              <td data-label="What" className="mono">
                {entry.method} {entry.route} {entry.target}
              </td>
              <td data-label="Why">{entry.reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
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
      <SearchField label="Search settings" placeholder="Search settings" value={wanted} onChange={setWanted} />
      <div className={styles.tableBox} tabIndex={0}>
        <table className={styles.table}>
          <caption className="hidden-visually">Settings of this server, those that were changed first</caption>
          <thead>
            <tr>
              <th scope="col">Setting</th>
              <th scope="col">Value</th>
              <th scope="col">What it is for</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((one) => (
              <tr key={one.name}>
                <th scope="row">
                  {one.name}
                  <p className="quiet small mono">{one.variable}</p>
                </th>
                <td data-label="Value" className={one.changed ? styles.changed : undefined}>
                  {String(one.value === "" ? "–" : JSON.stringify(one.value))} <span className="quiet">{one.unit}</span>
                  {one.changed && <p className="quiet small">default {JSON.stringify(one.default)}</p>}
                </td>
                <td data-label="What it is for">{one.help}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}
