import { type ReactNode, useEffect, useState } from "react";
import { serverNow } from "../api/client.ts";
import { Store, useStore } from "../lib/store.ts";
import { exactText, millis, relativeLasts, relativeText, spanText, zoneText } from "../lib/time.ts";
import styles from "./Time.module.css";

/** Whether all times are shown as they are, and not by their age: `t` switches. */
const exactly = new Store(false);

export function toggleExactTimes(): void {
  exactly.set(!exactly.get());
}

export function useExactTimes(): boolean {
  return useStore(exactly);
}

/** Now by the server's clock, told again every so many milliseconds. */
export function useNow(everyMs: number): number {
  const [now, setNow] = useState(serverNow);
  useEffect(() => {
    const timer = setInterval(() => setNow(serverNow()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

/** A moment: its age, and exactly when it is the current row, has the focus, or `t` was pressed. */
export function Time({ at, focusable = false }: { at: string | null; focusable?: boolean }): ReactNode {
  const exact = useExactTimes();
  const moment = at === null ? Number.NaN : millis(at);
  const [every, setEvery] = useState(1000);
  const now = useNow(every);
  useEffect(() => setEvery(relativeLasts(moment, serverNow())), [moment]);
  if (at === null || Number.isNaN(moment)) return <span className="quiet">–</span>;
  const full = `${exactText(moment)} ${zoneText(moment)}`;
  return (
    <time
      className={styles.time}
      dateTime={at}
      title={full}
      data-exact={exact || undefined}
      tabIndex={focusable ? 0 : undefined}
    >
      <span className={styles.relative}>{relativeText(moment, now)}</span>
      <span className={styles.exact}>{exactText(moment).slice(0, 19)}</span>
    </time>
  );
}

/** How long something took, or has taken so far. */
export function Duration({ from, to }: { from: string | null; to: string | null }): ReactNode {
  if (from === null) return <span className="quiet">–</span>;
  if (to === null) return <Running from={from} />;
  return <span>{spanText(millis(to) - millis(from))}</span>;
}

function Running({ from }: { from: string }): ReactNode {
  const now = useNow(1000);
  const span = now - millis(from);
  return <span>{spanText(span < 60_000 ? Math.floor(span / 1000) * 1000 : span).replace(".0 s", " s")}</span>;
}
