import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { Play, Save } from "lucide-react";
import { type ReactNode, useState } from "react";
import { call } from "../../api/client.ts";
import { versionQuery } from "../../api/queries.ts";
import { useDenied } from "../../api/session.ts";
import { useCrumbs } from "../../app/crumbs.ts";
import { toast } from "../../app/toasts.ts";
import { useKeys } from "../../lib/keys.ts";
import { Alert } from "../../parts/Alert.tsx";
import { Button } from "../../parts/Button.tsx";
import { CopyAs } from "../../parts/CopyAs.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { RunBars } from "../../parts/RunBars.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import { Simulate } from "../history/Simulate.tsx";
import { Schedules } from "../schedules/Schedules.tsx";
import { EditAndGraph } from "./EditAndGraph.tsx";
import styles from "./Playbooks.module.css";
import { RunForm } from "./RunForm.tsx";
import { Stats } from "./Stats.tsx";
import { Versions } from "./Versions.tsx";

const route = getRouteApi("/playbook/$");
const TABS = [
  ["edit", "Editor"],
  ["versions", "Versions"],
  ["stats", "Stats"],
  ["simulate", "Simulate"],
  ["schedules", "Schedules"],
] as const;

/** One playbook: its text beside its graph, its versions, how its runs went, and its schedules. */
export function Playbook(): ReactNode {
  const { _splat: path = "" } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  useCrumbs([{ text: "Playbooks", to: "/playbooks" }, { text: path }]);
  const shown = useQuery(versionQuery(path, search.version ?? 0));
  const [typed, setTyped] = useState<{ of: string; text: string } | null>(null);
  const version = shown.data;
  const key = `${path} ${version?.version ?? 0}`;
  const text = typed?.of === key ? typed.text : (version?.source ?? "");
  const tab = search.tab ?? "edit";
  const save = useSave((saved) => {
    setTyped(null);
    void navigate({ to: "/playbook/$", params: { _splat: saved }, search: { tab: "edit" } });
  });
  const denied = useDenied("POST /api/catalog");
  const mayRun = useDenied("POST /api/executions");
  const changed = version !== undefined && text !== version.source;
  useKeys("Playbook", [
    { keys: "mod+s", text: "save as a new version", run: () => changed && !denied && save.mutate(text) },
    { keys: "r", text: "run", run: () => void navigate({ search: (before) => ({ ...before, run: true }) }) },
  ]);
  if (shown.isError && !version) {
    return (
      <Empty isPage title={`${path} is not in the catalog`}>
        <Trouble what="The playbook" error={shown.error} retry={() => void shown.refetch()} />
        <p>
          Its runs may still exist:{" "}
          <Link to="/runs" search={{ path }}>
            runs of {path}
          </Link>
          .
        </p>
      </Empty>
    );
  }
  return (
    <div className={styles.page}>
      <header className={styles.tools}>
        <h1 className="cut">{path}</h1>
        <span className="quiet">v{version?.version ?? "…"}</span>
        <RunBars path={path} />
        <Link to="/runs" search={{ path }}>
          All runs
        </Link>
        <div className={styles.end}>
          <CopyAs
            actions={{
              show: { cli: ["catalog", "show", path], route: "GET /api/catalog/show", query: { path } },
              register: {
                cli: ["catalog", "register", "FILE"],
                route: "POST /api/catalog",
                body: { playbook: "…" },
              },
            }}
          />
          <Button
            icon={<Save size={14} />}
            denied={denied}
            disabled={!changed || save.isPending}
            onClick={() => save.mutate(text)}
          >
            Save as v{(version?.version ?? 0) + 1}
          </Button>
          <Button
            kind="main"
            icon={<Play size={14} />}
            denied={mayRun}
            onClick={() => void navigate({ search: (before) => ({ ...before, run: true }) })}
          >
            Run
          </Button>
        </div>
      </header>
      <nav className={styles.tabs} aria-label="Sections">
        {TABS.map(([one, name]) => (
          <Link
            key={one}
            to="."
            search={(before) => ({ ...before, tab: one })}
            data-on={one === tab}
            aria-current={one === tab ? "page" : undefined}
          >
            {name}
          </Link>
        ))}
      </nav>
      {save.isError && <Alert error={save.error} />}
      {!version ? (
        <Skeleton lines={10} />
      ) : tab === "versions" ? (
        <Versions path={path} />
      ) : tab === "stats" ? (
        <Stats path={path} period={search.period ?? "30d"} order={search.order ?? "slow"} />
      ) : tab === "simulate" ? (
        <div className={styles.panel}>
          <Simulate path={path} draft={text} heading="h2" />
        </div>
      ) : tab === "schedules" ? (
        <Schedules path={path} />
      ) : (
        <EditAndGraph
          key={key}
          text={text}
          step={search.step}
          onStep={(step) => void navigate({ search: (before) => ({ ...before, step }), replace: true })}
          onChange={(next) => setTyped({ of: key, text: next })}
        />
      )}
      {search.run && (
        <RunForm
          path={path}
          version={search.version ?? 0}
          onClose={() => void navigate({ search: (before) => ({ ...before, run: undefined }), replace: true })}
        />
      )}
    </div>
  );
}

function useSave(onSaved: (path: string) => void) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (playbook: string) => call("POST /api/catalog", { body: { playbook } }),
    onSuccess: (saved) => {
      void queries.invalidateQueries({ queryKey: ["catalog"] });
      toast({
        kind: "done",
        text: saved.created
          ? `${saved.path} v${saved.version} is registered`
          : `This text is v${saved.version} already`,
      });
      onSaved(saved.path);
    },
  });
}

const START = `metadata: {name: hello, path: examples/hello}
workload: {name: world}
workflow:
  - step: start
    tool: {kind: noop, data: {text: "hello {{ workload.name }}"}}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop, data: "{{ start.text }}"}
`;

/** A playbook that is not in the catalog yet. */
export function NewPlaybook(): ReactNode {
  useCrumbs([{ text: "Playbooks", to: "/playbooks" }, { text: "New" }]);
  const [text, setText] = useState(START);
  const [step, setStep] = useState<string | undefined>(undefined);
  const navigate = useNavigate();
  const denied = useDenied("POST /api/catalog");
  const save = useSave((saved) => void navigate({ to: "/playbook/$", params: { _splat: saved } }));
  return (
    <div className={styles.page}>
      <header className={styles.tools}>
        <h1>New playbook</h1>
        <div className={styles.end}>
          <Button
            kind="main"
            icon={<Save size={14} />}
            denied={denied}
            disabled={save.isPending}
            onClick={() => save.mutate(text)}
          >
            Register
          </Button>
        </div>
      </header>
      {save.isError && <Alert error={save.error} />}
      <EditAndGraph text={START} step={step} onStep={setStep} onChange={setText} />
    </div>
  );
}
