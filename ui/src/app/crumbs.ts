/** Where the page is: the trail at its top, and the title of its tab. */
import { useEffect } from "react";
import { Store, useStore } from "../lib/store.ts";

export interface Crumb {
  text: string;
  /** address of the page; none for the one that is shown */
  to?: string;
}

const crumbs = new Store<readonly Crumb[]>([]);

export function useTrail(): readonly Crumb[] {
  return useStore(crumbs);
}

/** Say where this view is. */
export function useCrumbs(trail: Crumb[]): void {
  const told = JSON.stringify(trail);
  useEffect(() => {
    const parts = JSON.parse(told) as Crumb[];
    crumbs.set(parts);
    const words = parts.map((one) => one.text).toReversed();
    document.title = [...words, "arclog"].join(" · ");
  }, [told]);
}
