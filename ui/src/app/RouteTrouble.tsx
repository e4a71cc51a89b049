import type { ErrorComponentProps } from "@tanstack/react-router";
import { type ReactNode, useEffect } from "react";
import { reachable } from "../api/client.ts";
import { messageOf, ServerAway } from "../api/problem.ts";
import { Trouble } from "../parts/Trouble.tsx";

const CODE = /preload CSS|dynamically imported module|Importing a module script failed|error loading dynamically/i;
const ASK_AGAIN_MS = 1000;
const KEY = "arclog.reloaded";

/**
 * A view that cannot be shown. When it is its code that is missing, the server is away, or another version of it is there: the
 * page is loaded anew as soon as it answers. The address says what was shown, so nothing is lost.
 */
export function RouteTrouble({ error, reset }: ErrorComponentProps): ReactNode {
  const isCode = CODE.test(messageOf(error));
  useEffect(() => {
    if (!isCode) return;
    const timer = setInterval(() => void reloadOnce(), ASK_AGAIN_MS);
    return () => clearInterval(timer);
  }, [isCode]);
  return <Trouble what="This view" error={isCode ? new ServerAway() : error} {...(isCode ? {} : { retry: reset })} />;
}

/** Once a minute at most: a page whose code is broken must not load itself for ever. */
async function reloadOnce(): Promise<void> {
  try {
    const answer = await fetch("/health", { cache: "no-store" });
    if (!answer.ok) return;
  } catch {
    reachable.set(false);
    return;
  }
  const last = Number(sessionStorage.getItem(KEY) ?? 0);
  if (Date.now() - last < 60_000) return;
  sessionStorage.setItem(KEY, String(Date.now()));
  window.location.reload();
}
