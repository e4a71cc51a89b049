import { useCallback, useMemo, useRef, useState } from "react";
import type { ListedRun } from "../../api/types.ts";

/** Which runs are chosen for an action. */
export function useSelection(rows: ListedRun[]) {
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const last = useRef<string | null>(null);
  const toggle = useCallback(
    (key: string, range: boolean) => {
      setChosen((before) => {
        const after = new Set(before);
        const from = range && last.current ? rows.findIndex((run) => run.execution_id === last.current) : -1;
        const to = rows.findIndex((run) => run.execution_id === key);
        if (from >= 0 && to >= 0) {
          for (const run of rows.slice(Math.min(from, to), Math.max(from, to) + 1)) after.add(run.execution_id);
        } else if (!after.delete(key)) after.add(key);
        last.current = key;
        return after;
      });
    },
    [rows],
  );
  const clear = useCallback(() => setChosen((before) => (before.size ? new Set() : before)), []);
  const picked = useMemo(() => rows.filter((run) => chosen.has(run.execution_id)), [rows, chosen]);
  return { chosen, toggle, clear, rows: picked };
}
