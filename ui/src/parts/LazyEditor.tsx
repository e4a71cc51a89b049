import { lazy, type ReactNode, Suspense } from "react";
import type { EditorProps } from "./Editor.tsx";
import { Skeleton } from "./Skeleton.tsx";

/** Loaded with the views that show an editor, which are loaded on demand themselves. */
const load = () => import("./Editor.tsx");
const loading = load().catch(load);
loading.catch(() => undefined); // it is reported where an editor is shown
const Loaded = lazy(async () => ({ default: (await loading.catch(load)).Editor }));

/** The editor; its code comes while the data is asked for. */
export function LazyEditor(props: EditorProps): ReactNode {
  return (
    <Suspense fallback={<Skeleton lines={10} height={1.25} />}>
      <Loaded {...props} />
    </Suspense>
  );
}
