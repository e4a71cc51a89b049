import { type ReactNode, useCallback, useEffect, useMemo, useState } from "react";
import { MomentContext, type MomentView, type Selection } from "./context.ts";
import type { RunLog } from "./log.ts";
import { Moments } from "./moment.ts";

/** The address follows a drag once it rests. */
const REST_MS = 150;

interface Props {
  log: RunLog;
  version: number;
  /** the moment in the address; none: the newest */
  seq: number | undefined;
  select: (change: Selection) => void;
  children: ReactNode;
}

/**
 * Which moment the page shows. While somebody drags or plays, it changes with every frame: then only what draws the moment is drawn
 * anew, and the address stays as it was.
 */
export function MomentProvider({ log, version, seq: addressed, select, children }: Props): ReactNode {
  const [dragged, setDragged] = useState<{ seq: number; from: number | undefined } | null>(null);
  // Whoever goes elsewhere in the meantime has decided.
  const seq = dragged && dragged.from === addressed ? dragged.seq : addressed;
  const moments = useMemo(() => new Moments(log), [log]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the log grows in place; its version says when
  const moment = useMemo(() => moments.at(seq ?? log.length), [moments, seq, log, version]);
  const scrub = useCallback((next: number) => setDragged({ seq: next, from: addressed }), [addressed]);
  useEffect(() => {
    if (!dragged || dragged.from !== addressed || dragged.seq === addressed) return;
    const next = dragged.seq < log.length ? dragged.seq : undefined;
    const timer = setTimeout(() => (next === addressed ? setDragged(null) : select({ seq: next })), REST_MS);
    return () => clearTimeout(timer);
  }, [dragged, addressed, select, log]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the address has moved: a drag before that is over
  useEffect(() => setDragged(null), [addressed]);
  const view = useMemo<MomentView>(() => ({ seq, moment, scrub }), [seq, moment, scrub]);
  return <MomentContext value={view}>{children}</MomentContext>;
}
