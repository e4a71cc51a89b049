import { type ReactNode, useState } from "react";
import styles from "./BarChart.module.css";

/** How a part of a bar is drawn: the state that it counts, or no state at all. */
export type BarKind = "failed" | "cancelled" | "completed" | "other";

export interface Bar {
  key: number | string;
  /** from the ground up */
  parts: readonly (readonly [BarKind, number])[];
  /** what is shown below the chart while somebody points at it */
  text: string;
}

interface Props {
  /** what is drawn, for screen readers */
  label: string;
  bars: readonly Bar[];
  /** below the first and the last bar */
  ends: readonly [string, string];
}

const HEIGHT = 88;

/** Bars over time, each of some parts. */
export function BarChart({ label, bars, ends }: Props): ReactNode {
  const [at, setAt] = useState<number | null>(null);
  const most = Math.max(1, ...bars.map((bar) => bar.parts.reduce((sum, [, value]) => sum + value, 0)));
  const width = 100 / Math.max(bars.length, 1);
  const shown = at === null ? undefined : bars[at];
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
            <g key={bar.key} opacity={at === null || at === index ? 1 : 0.45}>
              <rect x={index * width} y={HEIGHT - 1} width={width * 0.78} height={1} className={styles.ground} />
              {bar.parts.map(([kind, value]) => {
                // What happened at all is seen, however little it was.
                const height = value ? Math.max(2, (value / most) * (HEIGHT - 4)) : 0;
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
          <span>{shown.text}</span>
        ) : (
          <>
            <span>{ends[0]}</span>
            <span>{ends[1]}</span>
          </>
        )}
      </figcaption>
    </figure>
  );
}
