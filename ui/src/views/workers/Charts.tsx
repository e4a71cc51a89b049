import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useEffect, useState } from "react";
import { metricsQuery } from "../../api/queries.ts";
import { parseMetrics, quantiles, rates, type Sample } from "../../lib/metrics.ts";
import { spanText } from "../../lib/time.ts";
import styles from "./Work.module.css";

/** Ten minutes, looked at every four seconds. */
const MOST = 150;

/** Rates and latencies of this server while somebody looks. */
export function Charts(): ReactNode {
  const metrics = useQuery(metricsQuery);
  const [samples, setSamples] = useState<Sample[]>([]);
  const { data, dataUpdatedAt } = metrics;
  useEffect(() => {
    if (typeof data !== "string" || !dataUpdatedAt) return;
    setSamples((before) =>
      before.at(-1)?.at === dataUpdatedAt
        ? before
        : [...before, { at: dataUpdatedAt, values: parseMetrics(data) }].slice(-MOST),
    );
  }, [data, dataUpdatedAt]);
  return (
    <section className={styles.charts} aria-label="Rates and latencies">
      <Chart title="Events" values={rates(samples, "arclog_events_total")} text={perSecond} />
      <Chart title="Finished runs" values={rates(samples, "arclog_executions_ended_total")} text={perSecond} />
      <Chart title="Commit p95" values={quantiles(samples, "arclog_append_seconds", 0.95)} text={seconds} />
      <Chart title="Decision p95" values={quantiles(samples, "arclog_decision_seconds", 0.95)} text={seconds} />
    </section>
  );
}

function perSecond(value: number): string {
  return `${value >= 10 ? Math.round(value) : value.toFixed(1)} /s`;
}

function seconds(value: number): string {
  return value ? (value < 0.001 ? `${(value * 1000).toFixed(2)} ms` : spanText(value * 1000)) : "–";
}

function Chart({
  title,
  values,
  text,
}: {
  title: string;
  values: number[];
  text: (value: number) => string;
}): ReactNode {
  const most = Math.max(...values, 1e-9);
  const step = 100 / Math.max(MOST - 1, 1);
  const first = 100 - step * Math.max(values.length - 1, 0);
  const points = values.map(
    (value, index) => `L${(first + index * step).toFixed(2)} ${(30 - (28 * value) / most).toFixed(2)}`,
  );
  return (
    <figure className={styles.chart}>
      <p>
        <span className="quiet">{title}</span>
        <b>{values.length ? text(values.at(-1) ?? 0) : "–"}</b>
      </p>
      <svg
        viewBox="0 0 100 32"
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}: ${text(values.at(-1) ?? 0)}`}
      >
        {values.length > 1 && <path d={`M${first.toFixed(2)} 32 ${points.join(" ")} L100 32 Z`} />}
      </svg>
      <p className="quiet small">
        <span>{values.length > 1 ? "last 10 minutes" : "collecting …"}</span>
        {values.length > 1 && <span>max {text(most)}</span>}
      </p>
    </figure>
  );
}
