import type { ReactNode } from "react";
import { capsOf } from "../lib/keys.ts";
import styles from "./Kbd.module.css";

/** The keys of a shortcut. */
export function Kbd({ keys }: { keys: string }): ReactNode {
  return (
    <span className={styles.keys}>
      {capsOf(keys).map((cap) => (
        <kbd key={cap} className={styles.cap}>
          {cap}
        </kbd>
      ))}
    </span>
  );
}
