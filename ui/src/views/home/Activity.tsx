import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { activityQuery } from "../../api/queries.ts";
import { countText, shareText } from "../../lib/numbers.ts";
import { clockText, dayText } from "../../lib/time.ts";
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
          <Chart bars={bars ?? []} group={group} />
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

const HEIGHT = 88;

function Chart({ bars, group }: { bars: Bar[]; group: number }): ReactNode {
  const [at, setAt] = useState<number | null>(null);
  const most = Math.max(1, ...bars.map((bar) => bar.completed + bar.failed + bar.cancelled));
  const width = 100 / Math.max(bars.length, 1);
  const shown = at === null ? undefined : bars[at];
  const label = bars.length
    ? `Runs that ended, ${bars.length} bars. The highest has ${countText(most)}.`
    : "Finished runs: loading";
  return (
    <figure className={styles.chart}>
      <svg
        viewBox={`0 0 100 ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={label}
        onPointerMove={(event) => {
          const box = event.currentTarget.getBoundingClientRect();
          setAt(Math.min(bars.length - 1, Math.floor(((event.clientX - box.left) / box.width) * bars.length)));
        }}
        onPointerLeave={() => setAt(null)}
      >
        {bars.map((bar, index) => {
          let top = HEIGHT;
          return (
            <g key={bar.at} opacity={at === null || at === index ? 1 : 0.45}>
              <rect x={index * width} y={HEIGHT - 1} width={width * 0.78} height={1} className={styles.ground} />
              {KINDS.map((kind) => {
                // What happened at all is seen, however little it was.
                const height = bar[kind] ? Math.max(2, (bar[kind] / most) * (HEIGHT - 4)) : 0;
                top -= height;
                return height ? (
                  <rect
                    key={kind}
                    x={index * width}
                    y={top}
                    width={width * 0.78}
                    height={height}
                    className={styles[kind]}
                  />
                ) : null;
              })}
            </g>
          );
        })}
      </svg>
      <figcaption className={`${styles.caption} quiet small`}>
        {shown ? (
          <span>
            {barText(shown, group)}: {countText(shown.completed)} completed, {countText(shown.failed)} failed
            {shown.cancelled ? `, ${countText(shown.cancelled)} cancelled` : ""}
          </span>
        ) : (
          <>
            <span>{bars[0] ? barText(bars[0], group) : " "}</span>
            <span>now</span>
          </>
        )}
      </figcaption>
    </figure>
  );
}

function barText(bar: Bar, group: number): string {
  return group >= 24 ? dayText(bar.at) : group > 1 ? `${dayText(bar.at)} ${clockText(bar.at)}` : clockText(bar.at);
}
