import { useSyncExternalStore } from "react";

/** Below this the rail is a bar, panels stand below each other, and rows of tables are cards. The style sheets have it, too. */
const query = typeof window === "undefined" ? null : window.matchMedia("(max-width: 899px)");

function subscribe(listener: () => void): () => void {
  query?.addEventListener("change", listener);
  return () => query?.removeEventListener("change", listener);
}

export function useNarrow(): boolean {
  return useSyncExternalStore(subscribe, () => query?.matches ?? false);
}
