import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { serverNow } from "../../api/client.ts";
import { Problem } from "../../api/problem.ts";
import { runsQuery, STATS_RUNS, statsQuery } from "../../api/queries.ts";
import type { PlaybookStats } from "../../api/types.ts";
import { countText, plural, shareText } from "../../lib/numbers.ts";
import { dayText, millis, type Period, sinceOf, spanText } from "../../lib/time.ts";
import { BarChart } from "../../parts/BarChart.tsx";
import { Button } from "../../parts/Button.tsx";
import { CopyAs } from "../../parts/CopyAs.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { Select } from "../../parts/Field.tsx";
import { Panel } from "../../parts/Panel.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { Time } from "../../parts/Time.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import type { RunState } from "../runs/filters.ts";
import styles from "./Stats.module.css";
import { type DayStats, daysOf, inOrder, type Order, type StepStats } from "./stats.ts";

const route = getRouteApi("/playbook/$");

const PERIOD_TEXTS: readonly (readonly [Period, string])[] = [
  ["24h", "24 hours"],
  ["7d", "7 days"],
  ["30d", "30 days"],
  ["90d", "90 days"],
  ["all", "All time"],
];
const ORDER_TEXTS: readonly (readonly [Order, string])[] = [
  ["slow", "Slowest first"],
  ["failing", "Most failing first"],
];

interface Props {
  path: string;
  period: Period;
  order: Order;
}

/** How the latest runs of a playbook went: how many succeed, how long they and their steps take, and how that changes. */
export function Stats({ path, period, order }: Props): ReactNode {
  const navigate = route.useNavigate();
  const since = sinceOf(period, serverNow());
  const stats = useQuery(statsQuery(path, since));
  const found = stats.data;
  const isNone = stats.error instanceof Problem && stats.error.status === 404;
  const choose = (change: { period?: Period; order?: Order }): void =>
    void navigate({ search: (before) => ({ ...before, ...change }), replace: true });
  return (
    <div className={styles.stats} aria-busy={stats.isPlaceholderData}>
      <div className={styles.line}>
        <h2 className="hidden-visually">Statistics</h2>
        <Select label="Period" value={period} options={PERIOD_TEXTS} onChange={(next) => choose({ period: next })} />
        <span className="quiet small">
          {found && found.runs >= STATS_RUNS && `The newest ${countText(STATS_RUNS)} runs are counted.`}
        </span>
        <div className={styles.end}>
          <CopyAs
            actions={{
              stats: {
                cli: ["stats", path, ...(since ? ["--since", since] : []), "--last", String(STATS_RUNS)],
                route: "GET /api/stats",
                query: { path, ...(since ? { since } : {}), limit: STATS_RUNS },
                python: `client.stats(${JSON.stringify(path)}, since=${JSON.stringify(since)}, limit=${STATS_RUNS})`,
              },
            }}
          />
        </div>
      </div>
      {found ? (
        <>
          <Summary stats={found} path={path} since={since} />
          <Trend days={daysOf(found.days as unknown as DayStats[], since, serverNow())} />
          <Steps
            path={path}
            steps={inOrder(found.steps as unknown as StepStats[], order)}
            order={order}
            onOrder={(next) => choose({ order: next })}
          />
        </>
      ) : isNone ? (
        <None path={path} period={period} onAll={() => choose({ period: "all" })} />
      ) : stats.isError ? (
        <Trouble what="The statistics" error={stats.error} retry={() => void stats.refetch()} />
      ) : (
        <Skeleton lines={10} />
      )}
    </div>
  );
}

/** There is no run of the period: there are older ones, or there never was one. */
function None({ path, period, onAll }: { path: string; period: Period; onAll: () => void }): ReactNode {
  const newest = useQuery(runsQuery({ path, limit: 1 }));
  if (newest.isPending || newest.isPlaceholderData) return <Skeleton lines={3} />;
  const [last] = newest.data?.executions ?? [];
  if (!last) {
    return (
      <Empty title="No runs yet" command={`arclog run ${path} --server ${window.location.origin}`}>
        Success rate, durations and failures of each step are shown here once this playbook has run. Start it above, or
        from the command line:
      </Empty>
    );
  }
  return (
    <Empty title={`No runs in the last ${PERIOD_TEXTS.find(([name]) => name === period)?.[1]}`}>
      <p>
        The newest run was requested <Time at={last.created_at} />.
      </p>
      <Button onClick={onAll}>Show all time</Button>
    </Empty>
  );
}

function Summary({ stats, path, since }: { stats: PlaybookStats; path: string; since: string }): ReactNode {
  const steps = stats.steps as unknown as StepStats[];
  const completed = stats.states.COMPLETED ?? 0;
  const failed = stats.states.FAILED ?? 0;
  const others = Object.entries(stats.states).filter(([state]) => state !== "COMPLETED" && state !== "FAILED");
  const slowest = steps[0];
  const failing = inOrder(steps, "failing").find((one) => one.failed > 0);
  const runs = (count: number, state: RunState): ReactNode => (
    <Link to="/runs" search={{ path, state: [state], called: true, ...(since ? { since } : {}) }}>
      {countText(count)} {state.toLowerCase()}
    </Link>
  );
  return (
    <dl className={styles.facts}>
      <div>
        <dt>Success rate</dt>
        <dd>{shareText(completed, completed + failed)}</dd>
        <dd className={styles.detail}>of the runs that completed or failed</dd>
      </div>
      <div>
        <dt>Runs</dt>
        <dd>{countText(stats.runs)}</dd>
        <dd className={styles.detail}>
          {runs(completed, "COMPLETED")}, {failed ? runs(failed, "FAILED") : "0 failed"}
          {others.map(([state, count]) => (
            <span key={state}>, {runs(count, state as RunState)}</span>
          ))}
        </dd>
      </div>
      <div>
        <dt>Duration</dt>
        <dd>{took(stats.p50_ms)}</dd>
        <dd className={styles.detail}>p50; p95 is {took(stats.p95_ms)} (completed runs)</dd>
      </div>
      <div>
        <dt>Slowest step</dt>
        <dd className="cut">{slowest ? slowest.step : "–"}</dd>
        <dd className={styles.detail}>{slowest ? `p95 ${took(slowest.p95_ms)}` : "no step has ended"}</dd>
      </div>
      <div>
        <dt>Most failing step</dt>
        <dd className="cut">{failing ? failing.step : "–"}</dd>
        <dd className={styles.detail}>
          {failing ? `failed ${countText(failing.failed)} of ${plural(failing.runs, "time")}` : "no step failed"}
        </dd>
      </div>
    </dl>
  );
}

/** Days in a row: runs with those that failed, and how long the completed ones took. */
function Trend({ days }: { days: DayStats[] }): ReactNode {
  const name = (one: DayStats): string => dayText(millis(`${one.day}T00:00:00Z`), "UTC");
  const [first, last] = [days[0], days.at(-1)];
  const ends = [first ? name(first) : "", last && last !== first ? name(last) : ""] as const;
  const highest = Math.max(...days.map((one) => one.runs));
  const longest = Math.max(...days.map((one) => one.p50_ms ?? 0));
  const ran = days.filter((one) => one.runs > 0).toReversed();
  return (
    <Panel title="Trend" note="by day the run was requested, UTC">
      <div className={styles.charts}>
        <div>
          <h3>Runs, failed ones in red, at most {countText(highest)} a day</h3>
          <BarChart
            label={`Runs by day, ${plural(days.length, "day")}. The highest has ${countText(highest)}.`}
            bars={days.map((one) => ({
              key: one.day,
              parts: [
                ["failed", one.failed],
                ["other", one.runs - one.failed],
              ],
              text: `${name(one)}: ${plural(one.runs, "run")}, ${countText(one.failed)} failed`,
            }))}
            ends={ends}
          />
        </div>
        <div>
          <h3>p50 duration of completed runs, at most {took(longest)}</h3>
          <BarChart
            label={`p50 duration by day, ${plural(days.length, "day")}. The longest is ${took(longest)}.`}
            bars={days.map((one) => ({
              key: one.day,
              parts: [["other", one.p50_ms ?? 0]],
              text: `${name(one)}: ${one.p50_ms === null ? "no completed run" : took(one.p50_ms)}`,
            }))}
            ends={ends}
          />
        </div>
      </div>
      <details className={styles.days}>
        <summary>Days as a table</summary>
        <table className={styles.table}>
          <caption className="hidden-visually">Runs by day</caption>
          <thead>
            <tr>
              <th scope="col">Day</th>
              <th scope="col">Runs</th>
              <th scope="col">Failed</th>
              <th scope="col">p50</th>
            </tr>
          </thead>
          <tbody>
            {ran.map((one) => (
              <tr key={one.day}>
                <th scope="row">{name(one)}</th>
                <td>{countText(one.runs)}</td>
                <td>{countText(one.failed)}</td>
                <td>{took(one.p50_ms)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </details>
    </Panel>
  );
}

interface StepsProps {
  path: string;
  steps: StepStats[];
  order: Order;
  onOrder: (order: Order) => void;
}

function Steps({ path, steps, order, onOrder }: StepsProps): ReactNode {
  const longest = Math.max(1, ...steps.map((one) => one.p95_ms ?? 0));
  return (
    <Panel
      title="Steps"
      note={countText(steps.length)}
      actions={<Select label="Order of the steps" value={order} options={ORDER_TEXTS} onChange={onOrder} />}
    >
      {steps.length === 0 ? (
        <p className={styles.none}>No step of these runs has ended.</p>
      ) : (
        <table className={styles.table}>
          <caption className="hidden-visually">Steps of these runs</caption>
          <thead>
            <tr>
              <th scope="col">Step</th>
              <th scope="col">Ended</th>
              <th scope="col">Failed</th>
              <th scope="col">p50</th>
              <th scope="col">p95</th>
              <th scope="col">Slowest</th>
            </tr>
          </thead>
          <tbody>
            {steps.map((one) => (
              <tr key={one.step}>
                <th scope="row">
                  <Link to="/playbook/$" params={{ _splat: path }} search={{ tab: "edit", step: one.step }}>
                    {one.step}
                  </Link>
                  <span className={styles.bar} aria-hidden="true">
                    <span style={{ width: `${(100 * (one.p95_ms ?? 0)) / longest}%` }} />
                    <span style={{ width: `${(100 * (one.p50_ms ?? 0)) / longest}%` }} />
                  </span>
                </th>
                <td data-name="Ended">{countText(one.runs)}</td>
                <td data-name="Failed" className={one.failed ? styles.failed : ""}>
                  {countText(one.failed)}
                  {one.failed > 0 && ` (${shareText(one.failed, one.runs)})`}
                </td>
                <td data-name="p50">{took(one.p50_ms)}</td>
                <td data-name="p95">{took(one.p95_ms)}</td>
                <td data-name="Slowest">
                  <Link
                    to="/runs/$id"
                    params={{ id: one.slowest_in }}
                    search={{ step: one.step }}
                    aria-label={`Slowest ${one.step}: ${took(one.slowest_ms)}, in run ${one.slowest_in}`}
                  >
                    {took(one.slowest_ms)}
                  </Link>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}

/** To the millisecond below a second: steps are often short, and are compared here. */
function took(ms: number | null): string {
  if (ms === null) return "–";
  return ms < 1 ? "< 1 ms" : ms < 1000 ? `${ms} ms` : spanText(ms);
}
