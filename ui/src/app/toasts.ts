/** Short messages about what was done. They go by themselves; a failure stays until it is read. */
import { Store, useStore } from "../lib/store.ts";

export interface Toast {
  id: number;
  kind: "done" | "failed" | "info";
  text: string;
  detail?: string;
  action?: { text: string; run: () => void };
}

const LASTS_MS = 6000;
const MOST = 4;
let count = 0;
const toasts = new Store<readonly Toast[]>([]);

export function useToasts(): readonly Toast[] {
  return useStore(toasts);
}

export function dismissToast(id: number): void {
  toasts.set(toasts.get().filter((one) => one.id !== id));
}

export function toast(message: Omit<Toast, "id">): void {
  count += 1;
  const id = count;
  toasts.set([...toasts.get(), { ...message, id }].slice(-MOST));
  if (message.kind !== "failed") setTimeout(() => dismissToast(id), LASTS_MS);
}
