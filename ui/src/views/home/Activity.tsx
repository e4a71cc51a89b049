import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { activityQuery } from "../../api/queries.ts";
import { countText, shareText } from "../../lib/numbers.ts";
import { clockText, dayText } from "../../lib/time.ts";
import { BarChart, type Bar as DrawnBar } from "../../parts/BarChart.tsx";
import { Select } from "../../parts/Field.tsx";
import { Panel } from "../../parts/Panel.tsx";
import { StateGlyph } from "../../parts/State.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import styles from "./Activity.module.css";
import { type Bar, barsOf } from "./bars.ts";

export type Span = "24h" | "7d" | "30d";

/** Hours that are shown, and how many of them are one bar. */
const SPANS: Record<Span, { text: string; hours: number; group: number }> = {
  "24h": { text: "24 hours", hours: 24, group: 1 },
  "7d": { text: "7 days", hours: 168, group: 6 },
  "30d": { text: "30 days", hours: 720, group: 24 },
};
const OPTIONS = (Object.keys(SPANS) as Span[]).map((name) => [name, SPANS[name].text] as const);
const KINDS = ["failed", "cancelled", "completed"] as const;

/** How runs ended, over time. */
export function Activity({ span }: { span: Span }): ReactNode {
  const navigate = useNavigate();
  const { hours, group } = SPANS[span];
  const activity = useQuery(activityQuery(hours));
  const bars = activity.data ? barsOf(activity.data, hours, group) : null;
  const sum = (kind: (typeof KINDS)[number]): number => (bars ?? []).reduce((total, bar) => total + bar[kind], 0);
  const ended = sum("completed") + sum("failed");
  const highest = Math.max(0, ...(bars ?? []).map((bar) => bar.completed + bar.failed + bar.cancelled));
  return (
    <Panel
      title="Finished runs"
      actions={
        <Select
          label="Time span"
          value={span}
          options={OPTIONS}
          onChange={(chosen) => void navigate({ to: "/", search: { span: chosen === "24h" ? undefined : chosen } })}
        />
      }
    >
      {activity.isError && !bars ? (
        <Trouble what="The activity" error={activity.error} retry={() => void activity.refetch()} />
      ) : (
        <div className={styles.body}>
          <dl className={styles.sums}>
            <div>
              <dt>
                <StateGlyph state="done" /> completed
              </dt>
              <dd>{bars ? countText(sum("completed")) : "–"}</dd>
            </div>
            <div>
              <dt>
                <StateGlyph state="failed" /> failed
              </dt>
              <dd>{bars ? <FailedLink count={sum("failed")} span={span} /> : "–"}</dd>
            </div>
            <div>
              <dt>success rate</dt>
              <dd>{bars ? shareText(sum("completed"), ended) : "–"}</dd>
            </div>
          </dl>
          <BarChart
            label={
              bars
                ? `Runs that ended, ${bars.length} bars. The highest has ${countText(highest)}.`
                : "Finished runs: loading"
            }
            bars={drawnOf(bars ?? [], group)}
            ends={[bars?.[0] ? barText(bars[0], group) : "", "now"]}
          />
        </div>
      )}
    </Panel>
  );
}

function FailedLink({ count, span }: { count: number; span: Span }): ReactNode {
  if (!count) return "0";
  return (
    <Link to="/runs" search={{ state: ["FAILED"], span }} className={styles.failedCount}>
      {countText(count)}
    </Link>
  );
}

/** The bars as they are drawn, with what each says. */
function drawnOf(bars: readonly Bar[], group: number): DrawnBar[] {
  return bars.map((bar) => ({
    key: bar.at,
    parts: KINDS.map((kind) => [kind, bar[kind]] as const),
    text: `${barText(bar, group)}: ${countText(bar.completed)} completed, ${countText(bar.failed)} failed${
      bar.cancelled ? `, ${countText(bar.cancelled)} cancelled` : ""
    }`,
  }));
}

function barText(bar: Bar, group: number): string {
  return group >= 24 ? dayText(bar.at) : group > 1 ? `${dayText(bar.at)} ${clockText(bar.at)}` : clockText(bar.at);
}
