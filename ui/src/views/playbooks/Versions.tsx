import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { type ReactNode, useMemo } from "react";
import { checkQuery, versionDiffQuery, versionQuery, versionsQuery } from "../../api/queries.ts";
import { type PlanGraph, type PlanStep, planOf } from "../../lib/plan.ts";
import type { NodeLook } from "../../parts/Graph.tsx";
import { LazyGraph } from "../../parts/LazyGraph.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { Time } from "../../parts/Time.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import styles from "./Playbooks.module.css";

const route = getRouteApi("/playbook/$");

/** All versions, and what changed between two of them: as text and as a graph. */
export function Versions({ path }: { path: string }): ReactNode {
  const search = route.useSearch();
  const versions = useQuery(versionsQuery(path));
  if (versions.isError && !versions.data) return <Trouble what="The versions" error={versions.error} />;
  if (!versions.data) return <Skeleton lines={6} />;
  const all = versions.data.versions;
  const newer = search.version ?? all[0]?.version ?? 1;
  const older = search.since ?? Math.max(newer - 1, 1);
  return (
    <div className={`${styles.split} ${styles.history}`}>
      <section className={styles.half} aria-label="Versions">
        <ol className={styles.versions}>
          {all.map((one) => (
            <li key={one.version} data-on={one.version === newer}>
              <b>v{one.version}</b>
              <Time at={one.registered_at} />
              <span className="mono quiet cut">{one.digest.slice(0, 12)}</span>
              <Link to="." search={(before) => ({ ...before, version: one.version, tab: "edit" })}>
                Open
              </Link>
              {one.version > 1 && (
                <Link to="." search={(before) => ({ ...before, version: one.version, since: one.version - 1 })}>
                  changes
                </Link>
              )}
            </li>
          ))}
        </ol>
      </section>
      <section className={styles.half} aria-label="Changes">
        {newer > 1 ? (
          <Changes path={path} older={older} newer={newer} />
        ) : (
          <p className={styles.diff}>This is the first version.</p>
        )}
      </section>
    </div>
  );
}

function Changes({ path, older, newer }: { path: string; older: number; newer: number }): ReactNode {
  const diff = useQuery(versionDiffQuery(path, older, newer));
  const before = usePlan(path, older);
  const after = usePlan(path, newer);
  const merged = useMemo(() => (before && after ? mergeOf(before, after) : null), [before, after]);
  return (
    <>
      <div className={`${styles.grow} ${styles.changed}`}>
        {merged && (
          <LazyGraph
            plan={merged.plan}
            look={merged.look}
            label={`Graph of what changed from v${older} to v${newer}`}
          />
        )}
      </div>
      <pre className={styles.diff} tabIndex={0} role="group" aria-label={`Changes from v${older} to v${newer}`}>
        {diff.data?.diff.split("\n").map((line, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: a line is its place
          <span key={index} data-kind={/^[+-](?![+-]{2})/.exec(line)?.[0] ?? ""}>
            {line || " "}
          </span>
        ))}
        {diff.data?.diff === "" && <span>The text is identical.</span>}
      </pre>
    </>
  );
}

function usePlan(path: string, version: number): PlanGraph | null {
  const shown = useQuery(versionQuery(path, version));
  const checked = useQuery({ ...checkQuery(shown.data?.source ?? ""), enabled: Boolean(shown.data) });
  return useMemo(() => (shown.data ? planOf(checked.data?.graph) : null), [shown.data, checked.data]);
}

/** Both plans in one: steps that came, went and changed. */
function mergeOf(before: PlanGraph, after: PlanGraph): { plan: PlanGraph; look: (step: string) => NodeLook } {
  const old = new Map(before.steps.map((step) => [step.name, contentOf(step)]));
  const now = new Map(after.steps.map((step) => [step.name, contentOf(step)]));
  const gone = before.steps.filter((step) => !now.has(step.name));
  const plan = { ...after, steps: [...after.steps, ...gone] };
  const look = (name: string): NodeLook => {
    const mark = !old.has(name)
      ? "added"
      : !now.has(name)
        ? "removed"
        : old.get(name) !== now.get(name)
          ? "changed"
          : undefined;
    return mark ? { state: null, note: mark, mark } : { state: null, note: "", isPlan: true };
  };
  return { plan, look };
}

/** What a step says, wherever it stands. */
function contentOf(step: PlanStep): string {
  return JSON.stringify(step, (key, value: unknown) => (key === "line" || key === "column" ? undefined : value));
}
