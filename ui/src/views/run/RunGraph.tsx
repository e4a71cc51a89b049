import { type ReactNode, useCallback, useMemo } from "react";
import { countText, plural } from "../../lib/numbers.ts";
import type { NodeLook } from "../../parts/Graph.tsx";
import { LazyGraph } from "../../parts/LazyGraph.tsx";
import { Panel } from "../../parts/Panel.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { useMoment, useRunView } from "./context.ts";
import styles from "./Run.module.css";
import { histogram } from "./spans.ts";
import { waitText } from "./waits.ts";

/** The plan with the run on it: states, tokens, arcs that were taken, and loops as one node each. */
export function RunGraph(): ReactNode {
  const { plan, steps, log, focus, select } = useRunView();
  const { moment } = useMoment();
  const bars = useMemo(() => {
    const found = new Map<string, NodeLook["bars"]>();
    const now = log.at.at(-1) ?? 0;
    for (const span of steps) if (span.items.size) found.set(span.step, histogram(span.items.values(), now));
    return found;
  }, [steps, log]);
  const look = useCallback(
    (name: string): NodeLook => {
      const step = moment.steps.get(name);
      if (!step) return { state: null, note: "" };
      const items = step.total ? `${countText(step.ok)} ✓${step.failed ? ` ${countText(step.failed)} ✗` : ""}` : "";
      const of = step.total && step.ok + step.failed < step.total ? ` of ${countText(step.total)}` : "";
      const waits = step.wait ? waitText(plan, name, step.wait) : "";
      const note = waits || (items ? items + of : step.runs > 1 ? `${countText(step.runs)} times` : "");
      const shown = bars.get(name);
      return { state: step.state, note, ...(shown ? { bars: shown } : {}) };
    },
    [moment, bars, plan],
  );
  const tokens = useMemo(() => {
    const found = new Map<string, number>();
    for (const place of moment.tokens.values()) found.set(place, (found.get(place) ?? 0) + 1);
    return found;
  }, [moment]);
  return (
    <div className={styles.graph}>
      <Panel title="Graph" note={plan ? plural(plan.steps.length, "step") : ""}>
        <div className={styles.canvas}>
          {plan ? (
            <LazyGraph
              plan={plan}
              look={look}
              taken={moment.taken}
              tokens={tokens}
              selected={focus.step}
              onSelect={(step) => select({ step, run: undefined, item: undefined })}
              label="Graph of the run"
            />
          ) : (
            <Skeleton lines={3} height={3} />
          )}
        </div>
      </Panel>
    </div>
  );
}
