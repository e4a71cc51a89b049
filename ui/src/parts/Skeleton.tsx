import type { ReactNode } from "react";
import styles from "./Skeleton.module.css";

const WIDTHS = [70, 53, 66, 49, 62, 45, 58, 41, 54, 67, 50, 63];

/** Lines in the place of what is loading, as high as that will be: nothing jumps when it comes. */
export function Skeleton({ lines, height = 2.5 }: { lines: number; height?: number }): ReactNode {
  return (
    <div className={styles.lines} role="status" aria-label="Loading">
      {WIDTHS.slice(0, lines).map((width) => (
        <div key={width} className={styles.line} style={{ height: `${height}rem` }}>
          <span style={{ width: `${width}%` }} />
        </div>
      ))}
    </div>
  );
}
