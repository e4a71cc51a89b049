import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { addressOf } from "../../api/client.ts";
import { useStream } from "../../api/useStream.ts";
import { type Part, RunLog } from "./log.ts";

/** After a render, the next waits this many times as long as it took: half of the time at least is free for other things. */
const REST = 2;

/** The outline of a run, live. `version` changes as it grows; the log itself stays the same object. */
export function useRunLog(id: string, onNews: () => void) {
  const log = useMemo(() => ({ id, log: new RunLog() }), [id]).log;
  const [version, bump] = usePaced();
  const address = addressOf("GET /api/executions/{execution_id}/outline/stream", { execution_id: id }, undefined);
  const { state, reason } = useStream<Part>(
    address,
    0,
    useCallback(
      (parts: Part[]) => {
        for (const part of parts) log.append(part);
        bump();
        onNews();
      },
      [log, bump, onNews],
    ),
  );
  return { log, version, state, reason };
}

/** A number that changes when `bump` is called, but not more often than what depends on it can be drawn. */
function usePaced(): [number, () => void] {
  const [version, setVersion] = useState(0);
  const pace = useRef({ begun: 0, ready: 0, timer: 0 });
  useEffect(() => {
    const { current } = pace;
    if (version && current.begun) {
      const now = performance.now();
      current.ready = now + REST * (now - current.begun);
      current.begun = 0;
    }
  }, [version]);
  useEffect(() => {
    const { current } = pace;
    return () => {
      clearTimeout(current.timer);
      current.timer = 0;
    };
  }, []);
  const bump = useCallback(() => {
    const { current } = pace;
    if (current.timer) return;
    current.timer = window.setTimeout(
      () => {
        current.timer = 0;
        current.begun = performance.now();
        setVersion((before) => before + 1);
      },
      Math.max(0, current.ready - performance.now()),
    );
  }, []);
  return [version, bump];
}
