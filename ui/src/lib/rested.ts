import { useEffect, useRef, useState } from "react";

const REST_MS = 120;

/** A value once it has stopped changing: what is dragged past is not asked for. */
export function useRested<T>(value: T): T {
  const [rested, setRested] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setRested(value), REST_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return rested;
}

/** A value that follows another one, but changes only so often; the last one always comes. */
export function usePaced<T>(value: T, everyMs: number): T {
  const [shown, setShown] = useState(value);
  const changed = useRef(0);
  useEffect(() => {
    const wait = changed.current + everyMs - performance.now();
    if (wait <= 0) {
      changed.current = performance.now();
      setShown(value);
      return;
    }
    const timer = setTimeout(() => {
      changed.current = performance.now();
      setShown(value);
    }, wait);
    return () => clearTimeout(timer);
  }, [value, everyMs]);
  return shown;
}
