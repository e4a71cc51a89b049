import type { ReactNode } from "react";
import { messageOf } from "../api/problem.ts";
import styles from "./Alert.module.css";
import { StateGlyph } from "./State.tsx";

function intoSight(alert: HTMLElement | null): void {
  alert?.scrollIntoView({ block: "nearest" });
}

/** Why an action did not succeed, beside what was asked for. In a long dialog it comes into sight by itself. */
export function Alert({ error }: { error: unknown }): ReactNode {
  return (
    <p className={styles.alert} role="alert" ref={intoSight}>
      <StateGlyph state="failed" />
      <span>{messageOf(error)}</span>
    </p>
  );
}
