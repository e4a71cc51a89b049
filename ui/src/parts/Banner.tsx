import type { ReactNode } from "react";
import type { State } from "../lib/states.ts";
import styles from "./Banner.module.css";
import { StateGlyph } from "./State.tsx";

/** The answer to the first question that a page is opened with. */
export function Banner({
  state,
  children,
  actions,
  icon,
}: {
  state: State;
  /** instead of the state's own */
  icon?: ReactNode;
  children: ReactNode;
  actions?: ReactNode;
}): ReactNode {
  return (
    <div className={`${styles.banner} ${styles[state] ?? ""}`} data-banner={state}>
      {icon ?? <StateGlyph state={state} size={16} />}
      <div className={styles.text}>{children}</div>
      {actions && <div className={styles.actions}>{actions}</div>}
    </div>
  );
}
