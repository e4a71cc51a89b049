import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { GitCompareArrows } from "lucide-react";
import type { ReactNode } from "react";
import { diffQuery, lastRunsQuery, runQuery, summaryQuery } from "../../api/queries.ts";
import type { ListedRun, RunsDiff, StepSummary, Summary } from "../../api/types.ts";
import { useCrumbs } from "../../app/crumbs.ts";
import { shortText } from "../../lib/diff.ts";
import { countText } from "../../lib/numbers.ts";
import { stateOfRun, stateOfStep } from "../../lib/states.ts";
import { exactText, millis, spanText } from "../../lib/time.ts";
import { Banner } from "../../parts/Banner.tsx";
import { CopyAs } from "../../parts/CopyAs.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { Panel } from "../../parts/Panel.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { State } from "../../parts/State.tsx";
import { Duration, Time } from "../../parts/Time.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import styles from "./Compare.module.css";

const route = getRouteApi("/runs/compare");
/** Values that are shown; the command has all of them. */
const MOST_VALUES = 200;

/** Two runs beside each other: where they part first, how long each step took, and which values differ. */
export function Compare(): ReactNode {
  const { a, b } = route.useSearch();
  useCrumbs([{ text: "Runs", to: "/runs" }, { text: "Compare" }]);
  if (a && b) return <Both a={a} b={b} />;
  if (a || b) return <Choose id={a ?? b ?? ""} />;
  return (
    <Empty isPage title="Select two runs to compare" icon={<GitCompareArrows size={28} />}>
      Select them in the <Link to="/runs">list of runs</Link>.
    </Empty>
  );
}

/** The other run: one of the same playbook. */
function Choose({ id }: { id: string }): ReactNode {
  const run = useQuery(runQuery(id));
  const path = run.data?.path ?? "";
  const others = useQuery({ ...lastRunsQuery(path, 50), enabled: path !== "" });
  if (run.isError) return <Trouble what={`Run ${id}`} error={run.error} />;
  const rows = (others.data?.executions ?? []).filter((one) => one.execution_id !== id);
  // What people compare a failure with most often.
  const good = run.data?.state === "FAILED" ? rows.find((one) => one.state === "COMPLETED") : undefined;
  return (
    <div className={styles.page}>
      <h1>Compare {run.data?.name ?? ""} with …</h1>
      {run.data && <One run={run.data} />}
      {good && (
        <p>
          <Link className={styles.suggested} to="/runs/compare" search={{ a: good.execution_id, b: id }}>
            <GitCompareArrows size={14} aria-hidden="true" /> Compare with the last run that completed
          </Link>
        </p>
      )}
      <Panel title="Other runs of this playbook">
        {!others.data ? (
          <Skeleton lines={4} />
        ) : rows.length === 0 ? (
          <Empty title="No other runs of this playbook" />
        ) : (
          <ul className={styles.others}>
            {rows.map((one) => (
              <li key={one.execution_id}>
                <Link to="/runs/compare" search={{ a: one.execution_id, b: id }}>
                  <State {...stateOfRun(one)} />
                  <b>{exactText(millis(one.created_at)).slice(0, 19)}</b>
                  <Time at={one.created_at} />
                  <span>v{one.version}</span>
                  <Duration from={one.started_at} to={one.ended_at} />
                  <span className="mono small">{one.execution_id}</span>
                </Link>
              </li>
            ))}
          </ul>
        )}
      </Panel>
    </div>
  );
}

function Both({ a, b }: { a: string; b: string }): ReactNode {
  const runs = [useQuery(runQuery(a)), useQuery(runQuery(b))];
  const summaries = [useQuery(summaryQuery(a)), useQuery(summaryQuery(b))];
  const diff = useQuery(diffQuery(a, b));
  const broken = [...runs, ...summaries].find((one) => one.isError && !one.data);
  if (broken) return <Trouble what="One of the runs" error={broken.error} />;
  const [left, right] = summaries.map((one) => one.data);
  const [first, second] = runs.map((one) => one.data);
  if (!left || !right || !first || !second) return <Skeleton lines={8} />;
  return (
    <div className={styles.page}>
      <header className={styles.head}>
        <h1>Compare</h1>
        <CopyAs
          actions={{
            diff: {
              cli: ["diff", a, b],
              route: "GET /api/executions/{execution_id}/diff",
              path: { execution_id: a },
              query: { with: b },
              python: `client.diff("${a}", "${b}")`,
            },
          }}
        />
        <Link to="/runs/compare" search={{ a: b, b: a }}>
          Swap
        </Link>
      </header>
      <div className={styles.runs}>
        <One run={first as ListedRun} />
        <One run={second as ListedRun} />
      </div>
      {diff.isError ? (
        <Trouble what="The comparison" error={diff.error} retry={() => void diff.refetch()} />
      ) : diff.data ? (
        <Divergence diff={diff.data} />
      ) : (
        <Skeleton lines={2} />
      )}
      {diff.data?.net && <Net net={diff.data.net} />}
      <Steps left={left as Summary} right={right as Summary} />
      {diff.data && <Values diff={diff.data} />}
    </div>
  );
}

function One({ run }: { run: ListedRun }): ReactNode {
  return (
    <p>
      <State {...stateOfRun(run)} badge />{" "}
      <Link to="/runs/$id" params={{ id: run.execution_id }}>
        {run.name}
      </Link>{" "}
      <span className="quiet">
        v{run.version} · <Time at={run.started_at} /> · <Duration from={run.started_at} to={run.ended_at} />
      </span>
    </p>
  );
}

function namesOf(left: Summary, right: Summary): string[] {
  return [...new Set([...Object.keys(left.steps), ...Object.keys(right.steps)])];
}

function Divergence({ diff }: { diff: RunsDiff }): ReactNode {
  const first = diff.divergence as {
    step: string;
    run: number;
    cause: string;
    a_seq: number;
    b_seq: number;
    a: unknown;
    b: unknown;
  } | null;
  if (!first) return <Banner state="done">Both runs took the same path.</Banner>;
  const place = first.step ? { step: first.step } : {};
  return (
    <Banner state="waiting" icon={<GitCompareArrows size={16} aria-hidden="true" />}>
      <p>
        First difference: <b>{first.step || "the start"}</b>
        {first.run > 1 ? ` (run ${first.run})` : ""}: {first.cause}
      </p>
      {(
        [
          ["First run", diff.a, first.a_seq, first.a],
          ["Second run", diff.b, first.b_seq, first.b],
        ] as const
      ).map(([title, id, seq, value]) => (
        <p key={title} className="small">
          {title}:{" "}
          {seq ? (
            <Link to="/runs/$id" params={{ id }} search={{ ...place, seq }}>
              event {countText(seq)}
            </Link>
          ) : (
            "no event"
          )}{" "}
          {value !== null && value !== undefined && <span className="mono">{shortText(value)}</span>}
        </p>
      ))}
    </Banner>
  );
}

const NET = [
  ["steps_added", "step added"],
  ["steps_removed", "step removed"],
  ["steps_changed", "step changed"],
  ["arcs_added", "arc added"],
  ["arcs_removed", "arc removed"],
] as const;

/** What is different in the playbooks of two versions. */
function Net({ net }: { net: Record<string, unknown> }): ReactNode {
  const lines = NET.flatMap(([key, text]) => ((net[key] ?? []) as string[]).map((name) => `${text}: ${name}`));
  return (
    <Panel title="Playbook changes">
      <ul className={styles.net}>
        {lines.map((line) => (
          <li key={line}>{line}</li>
        ))}
        {lines.length === 0 && <li className="quiet">No changes in steps or arcs.</li>}
      </ul>
    </Panel>
  );
}

function textOf(step: StepSummary | undefined): string {
  if (!step) return "not reached";
  const items = step.items ? ` (${countText(step.items.ok)} ok, ${countText(step.items.failed)} failed)` : "";
  const times = step.runs > 1 ? ` ${step.runs} times` : "";
  return `${step.status}${times}${items}`;
}

function Steps({ left, right }: { left: Summary; right: Summary }): ReactNode {
  const names = namesOf(left, right);
  const most = Math.max(
    1,
    ...names.flatMap((name) => [left.steps[name]?.took_ms ?? 0, right.steps[name]?.took_ms ?? 0]),
  );
  return (
    <Panel title="Steps">
      <table className={styles.table}>
        <caption className="hidden-visually">Steps of both runs</caption>
        <thead>
          <tr>
            <th scope="col">Step</th>
            <th scope="col">First run</th>
            <th scope="col">Second run</th>
          </tr>
        </thead>
        <tbody>
          {names.map((name) => (
            <tr key={name} data-differs={textOf(left.steps[name]) !== textOf(right.steps[name])}>
              <th scope="row">{name}</th>
              {[left.steps[name], right.steps[name]].map((step, index) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: the first and the second
                <td key={index}>
                  {step ? (
                    <State state={stateOfStep(step.status)} text={textOf(step)} />
                  ) : (
                    <span className="quiet">–</span>
                  )}
                  {step && (
                    <span className={styles.bar}>
                      <span style={{ width: `${(100 * (step.took_ms ?? 0)) / most}%` }} />
                      <span className="quiet small">
                        {typeof step.took_ms === "number" ? spanText(step.took_ms) : ""}
                      </span>
                    </span>
                  )}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Panel>
  );
}

function Values({ diff }: { diff: RunsDiff }): ReactNode {
  const found = diff.values as unknown as { path: string; a: unknown; b: unknown }[];
  return (
    <Panel
      title="Different values"
      note={found.length ? `${countText(found.length)}${diff.more_values ? ", and more" : ""}` : ""}
    >
      {found.length === 0 ? (
        <p className={styles.none}>Workload, ctx, step data and result are identical.</p>
      ) : (
        <table className={`${styles.table} ${styles.values}`}>
          <caption className="hidden-visually">Different values</caption>
          <thead>
            <tr>
              <th scope="col">Value</th>
              <th scope="col">First run</th>
              <th scope="col">Second run</th>
            </tr>
          </thead>
          <tbody>
            {found.slice(0, MOST_VALUES).map((one) => (
              <tr key={one.path}>
                <th scope="row" className="mono">
                  {one.path}
                </th>
                <td className="mono">{shortText(one.a)}</td>
                <td className="mono">{shortText(one.b)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}
