import type { ReactNode } from "react";
import { type State as Name, STATES } from "../lib/states.ts";
import styles from "./State.module.css";

/** Drawn here, so that they look the same with every font: ○ ◐ ✓ ✗ ⏸ ⤼ ⊘ ↻ */
const GLYPHS: Record<Name, ReactNode> = {
  queued: <circle cx="8" cy="8" r="5" />,
  running: (
    <>
      <circle cx="8" cy="8" r="5" />
      <path d="M8 3a5 5 0 0 1 0 10z" fill="currentColor" stroke="none" />
    </>
  ),
  done: <path d="m3.5 8.6 3 3 6-7" />,
  failed: <path d="m4.2 4.2 7.6 7.6m0-7.6-7.6 7.6" />,
  waiting: <path d="M6 4v8m4-8v8" strokeWidth="2.2" />,
  skipped: <path d="M2.5 10.5c1.5-5.5 7.5-6 10-2.5m.6-3.2-.4 3.4-3.4-.3" strokeDasharray="2.2 1.6" />,
  cancelled: (
    <>
      <circle cx="8" cy="8" r="5" />
      <path d="m4.6 4.6 6.8 6.8" />
    </>
  ),
  retrying: <path d="M12.6 6A5 5 0 1 0 13 8.6M13 2.8V6H9.8" />,
};

/** The mark of a state alone, where its name stands beside it. */
export function StateGlyph({ state, size = 14 }: { state: Name; size?: number }): ReactNode {
  return (
    <svg
      className={`${styles.glyph} ${styles[state]}`}
      width={size}
      height={size}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.8"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
    >
      {GLYPHS[state]}
    </svg>
  );
}

/** A state: mark and word. */
export function State({ state, text, badge = false }: { state: Name; text?: string; badge?: boolean }): ReactNode {
  return (
    <span className={`${styles.state} ${styles[state]} ${badge ? styles.badge : ""}`}>
      <StateGlyph state={state} />
      {text ?? STATES[state]}
    </span>
  );
}
