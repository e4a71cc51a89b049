import { copyText } from "../lib/clipboard.ts";
import { toast } from "./toasts.ts";

/** Copies the address of what is shown: it has all of it. */
export async function copyLink(): Promise<void> {
  const done = await copyText(window.location.href);
  toast(done ? { kind: "done", text: "Link copied" } : { kind: "failed", text: "Could not copy the link" });
}
