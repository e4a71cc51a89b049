import { getRouteApi, Link } from "@tanstack/react-router";
import { ListTree, SearchX } from "lucide-react";
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import type { ListedOrigin, ListedRun } from "../../api/types.ts";
import { useCrumbs } from "../../app/crumbs.ts";
import { useKeys } from "../../lib/keys.ts";
import { isOver, stateOfRun, waitingText } from "../../lib/states.ts";
import { Button } from "../../parts/Button.tsx";
import { CopyAs } from "../../parts/CopyAs.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { Chips, SearchField, Select } from "../../parts/Field.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { State, StateGlyph } from "../../parts/State.tsx";
import { Duration, Time } from "../../parts/Time.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import { type Column, VirtualTable } from "../../parts/VirtualTable.tsx";
import { Bulk } from "./Bulk.tsx";
import { isFiltered, type RunState, type RunsSearch } from "./filters.ts";
import { formOf } from "./form.ts";
import { Import } from "./Import.tsx";
import styles from "./Runs.module.css";
import { useRuns } from "./useRuns.ts";
import { useSelection } from "./useSelection.ts";

const route = getRouteApi("/runs");

const CHIPS: readonly (readonly [RunState, ReactNode])[] = (
  [
    ["RUNNING", "running", "Running"],
    ["PENDING", "queued", "Pending"],
    ["FAILED", "failed", "Failed"],
    ["COMPLETED", "done", "Completed"],
    ["CANCELLED", "cancelled", "Cancelled"],
  ] as const
).map(([name, state, text]) => [
  name,
  <span key={name} className={styles.chip}>
    <StateGlyph state={state} size={13} />
    {text}
  </span>,
]);

const SPAN_OPTIONS = [
  ["any", "Any time"],
  ["1h", "Last hour"],
  ["24h", "Last 24 hours"],
  ["7d", "Last 7 days"],
  ["30d", "Last 30 days"],
] as const;

const COLUMNS: Column<ListedRun>[] = [
  {
    key: "state",
    title: "State",
    width: "8.5rem",
    cell: (run) => {
      const { state, text } = stateOfRun(run);
      return <State state={state} text={text} />;
    },
  },
  { key: "name", title: "Playbook", width: "minmax(10rem, 1fr)", cell: (run) => <Name run={run} /> },
  { key: "where", title: "Step or error", width: "minmax(8rem, 2fr)", cell: (run) => <Where run={run} /> },
  { key: "started", title: "Started", width: "9.5rem", cell: (run) => <Time at={run.started_at ?? run.created_at} /> },
  {
    key: "took",
    title: "Duration",
    width: "5.5rem",
    align: "end",
    cell: (run) => <Duration from={run.started_at} to={isOver(run) ? run.ended_at : null} />,
  },
];

/** All runs, newest first. */
export function Runs(): ReactNode {
  useCrumbs([{ text: "Runs" }]);
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const runs = useRuns(search);
  const { rows } = runs;
  const selection = useSelection(rows);
  const field = useRef<HTMLInputElement>(null);
  const [typed, setTyped] = useState(search.q ?? "");
  const change = (changes: Partial<RunsSearch>, replace = false): void => {
    selection.clear();
    void navigate({ search: (before) => ({ ...before, focus: undefined, ...changes }), replace });
  };

  // The field and the address say the same, whoever changed it.
  const asked = search.q ?? "";
  useEffect(() => setTyped(asked), [asked]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: what was typed counts once nobody types
  useEffect(() => {
    if (typed === asked) return;
    const timer = setTimeout(() => change({ q: typed || undefined }, asked !== ""), 250);
    return () => clearTimeout(timer);
  }, [typed]);
  const wantsFocus = search.focus === true;
  // biome-ignore lint/correctness/useExhaustiveDependencies: it is asked for once
  useEffect(() => {
    if (!wantsFocus) return;
    field.current?.focus();
    void navigate({ search: (before) => ({ ...before, focus: undefined }), replace: true });
  }, [wantsFocus]);
  useKeys("Runs", [{ keys: "/", text: "search", run: () => field.current?.focus() }]);

  const open = (run: ListedRun): void =>
    void navigate({ to: "/runs/$id", params: { id: run.execution_id }, search: {} });
  const filtered = isFiltered(search);
  const labels = useMemo(
    () => new Map(rows.map((run) => [run.execution_id, `${run.name} ${run.execution_id}`])),
    [rows],
  );
  return (
    <div className={styles.runs}>
      <h1 className="hidden-visually">Runs</h1>
      <search className={styles.filters}>
        <SearchField label="Search runs" placeholder="Search runs" value={typed} onChange={setTyped} inputRef={field} />
        <Chips
          label="State"
          chosen={search.state ?? []}
          options={CHIPS}
          onChange={(chosen) => change({ state: chosen.length ? chosen : undefined })}
        />
        <Select
          label="Time"
          value={search.span ?? "any"}
          options={SPAN_OPTIONS}
          onChange={(chosen) => change({ span: chosen === "any" ? undefined : chosen, since: undefined })}
        />
        <label className={styles.check}>
          <input
            type="checkbox"
            checked={search.called ?? false}
            onChange={(event) => change({ called: event.target.checked || undefined })}
          />
          Child runs
        </label>
        <span className={styles.tools}>
          <Link to="/runs/events">Search events</Link>
          <CopyAs actions={{ list: formOf(runs.asked) }} />
          <Import />
        </span>
      </search>
      {(search.path || search.parent || search.origin) && (
        <div className={styles.narrowed}>
          {search.path && (
            <span>
              Only runs of <b>{search.path}</b>
            </span>
          )}
          {search.parent && (
            <span>
              Child runs of{" "}
              <Link to="/runs/$id" params={{ id: search.parent }}>
                {search.parent}
              </Link>
            </span>
          )}
          {search.origin && (
            <span>
              Retries and forks of{" "}
              <Link to="/runs/$id" params={{ id: search.origin }}>
                {search.origin}
              </Link>
            </span>
          )}
          <Button kind="quiet" onClick={() => change({ path: undefined, parent: undefined, origin: undefined })}>
            Show all
          </Button>
        </div>
      )}
      {runs.error && rows.length === 0 ? (
        <Trouble what="The list of runs" error={runs.error} retry={runs.refetch} />
      ) : (
        <VirtualTable
          label="Runs"
          columns={COLUMNS}
          rows={rows}
          keyOf={(run) => run.execution_id}
          card={(run) => <Card run={run} />}
          onOpen={open}
          selection={{ chosen: selection.chosen, toggle: selection.toggle, label: (key) => labels.get(key) ?? key }}
          onEnd={runs.isSparse ? undefined : runs.loadMore}
          onSight={runs.onSight}
          empty={
            runs.isLoading ? (
              <Skeleton lines={12} />
            ) : runs.hasNextPage ? null : filtered ? (
              <Empty title="No matching runs" icon={<SearchX size={28} />}>
                <Button onClick={() => void navigate({ search: {} })}>Show all runs</Button>
              </Empty>
            ) : (
              <Empty
                title="No runs yet"
                icon={<ListTree size={28} />}
                command={`arclog run examples/hello.yaml --server ${window.location.origin}`}
              >
                A run is one execution of a playbook. Start one:
              </Empty>
            )
          }
          foot={<Foot runs={runs} />}
        />
      )}
      <Bulk chosen={selection.rows} onClear={selection.clear} />
    </div>
  );
}

function Foot({ runs }: { runs: ReturnType<typeof useRuns> }): ReactNode {
  if (runs.isLoading) return null;
  if (runs.isFetchingNextPage) return <p className={styles.foot}>Loading older runs …</p>;
  if (runs.isSparse) {
    return (
      <p className={styles.foot}>
        {runs.rows.length ? "Only the newest runs were searched." : "No matches among the newest runs."}{" "}
        <Button onClick={runs.loadMore}>Search older runs</Button>
      </p>
    );
  }
  return runs.rows.length > 20 && !runs.hasNextPage ? <p className={styles.foot}>End of list</p> : null;
}

function Name({ run }: { run: ListedRun }): ReactNode {
  return (
    <span className={`${styles.name} cut`}>
      <Link to="/runs/$id" params={{ id: run.execution_id }}>
        {run.name}
      </Link>{" "}
      <span className="quiet small">
        v{run.version}
        {run.parent ? " · child" : ""}
        {run.imported ? " · imported, read-only" : ""}
        {run.origin ? " · " : ""}
        {run.origin && <OriginMark origin={run.origin} />}
      </span>
    </span>
  );
}

/** A retry or a fork, with a link to the run that it began with, at the event. */
function OriginMark({ origin }: { origin: ListedOrigin }): ReactNode {
  const { execution_id: id, seq, how } = origin;
  return (
    <Link
      to="/runs/$id"
      params={{ id }}
      search={{ seq }}
      title={how === "fork" ? `Fork of ${id} after event ${seq}` : `Retry of ${id}`}
      aria-label={`${how} of ${id}`}
    >
      {how}
    </Link>
  );
}

function Where({ run }: { run: ListedRun }): ReactNode {
  if (run.error) {
    return (
      <span className={`${run.state === "FAILED" ? styles.error : "quiet"} cut`} title={run.error}>
        {run.error}
      </span>
    );
  }
  if (isOver(run)) return null;
  const text = [run.waiting?.step || run.current_step, waitingText(run.waiting)].filter(Boolean).join(" · ");
  return (
    <span className="cut quiet" title={text}>
      {text}
    </span>
  );
}

function Card({ run }: { run: ListedRun }): ReactNode {
  const { state, text } = stateOfRun(run);
  return (
    <div className={styles.card}>
      <div className={styles.top}>
        <Name run={run} />
        <span className="quiet small">
          <Time at={run.started_at ?? run.created_at} />
        </span>
      </div>
      <div className={styles.top}>
        <span className={styles.line}>
          <State state={state} text={text} />
          <Where run={run} />
        </span>
        <span className="quiet small">
          <Duration from={run.started_at} to={isOver(run) ? run.ended_at : null} />
        </span>
      </div>
    </div>
  );
}
