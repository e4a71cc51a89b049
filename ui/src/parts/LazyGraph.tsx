import { type ComponentProps, lazy, type ReactNode, Suspense } from "react";
import type { Graph } from "./Graph.tsx";
import { Skeleton } from "./Skeleton.tsx";

const load = () => import("./Graph.tsx");
const Loaded = lazy(async () => ({ default: (await load()).Graph }));

/** Load the graph's code: for views that will show one, while their data is asked for. */
export function preloadGraph(): void {
  load().catch(() => undefined); // it is tried again where a graph is shown
}

/** The graph of a plan; its code is loaded on demand. */
export function LazyGraph(props: ComponentProps<typeof Graph>): ReactNode {
  return (
    <Suspense fallback={<Skeleton lines={3} height={3} />}>
      <Loaded {...props} />
    </Suspense>
  );
}
