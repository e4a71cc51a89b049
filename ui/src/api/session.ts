/** Who uses the page. The session itself is a cookie that no script can read: nothing of it is kept here or in storage. */
import { Store, useStore } from "../lib/store.ts";
import { access, call, type Route } from "./client.ts";
import { dropEarly } from "./early.ts";
import { messageOf, type Problem } from "./problem.ts";
import type { Me, SignIn } from "./types.ts";

export type Session =
  | { status: "loading" }
  /** the server could not be asked */
  | { status: "unknown"; reason: string }
  | { status: "out"; ways: SignIn; reason: string }
  /** `expired`: it was over while the page was in use; the page stays as it is until somebody signs in again */
  | { status: "in"; me: Me; ways: SignIn; expired: string };

export const session = new Store<Session>({ status: "loading" });

/** Other tabs of this browser hear when somebody signs in or out. */
const tabs = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("arclog.session");

/** Called with the new owner when somebody else signed in: nothing that was shown to another may stay. */
let onOtherOwner: () => void = () => {};
let onSameOwner: () => void = () => {};

export function watchOwner(other: () => void, same: () => void): void {
  onOtherOwner = other;
  onSameOwner = same;
}

/** What the server sent to one user is not shown to the next, even if nobody has looked at it yet. */
function forget(): void {
  dropEarly();
  onOtherOwner();
}

function enter(me: Me, ways: SignIn): void {
  const before = session.get();
  const isOther = before.status === "in" && (before.me.name !== me.name || before.me.tenant !== me.tenant);
  if (isOther) forget();
  access.csrf = me.csrf;
  session.set({ status: "in", me, ways, expired: "" });
  if (before.status === "in" && before.expired && !isOther) onSameOwner();
}

access.onUnauthenticated = (problem: Problem): void => {
  const before = session.get();
  if (before.status === "in" && !before.expired) session.set({ ...before, expired: problem.detail });
};

/** Ask the server who this is. */
export async function loadSession(reason = ""): Promise<void> {
  try {
    const ways = await call("GET /api/session", {});
    if (ways.me) return enter(ways.me, ways);
    const before = session.get();
    if (before.status === "in") session.set({ ...before, ways, expired: before.expired || "You were signed out." });
    else session.set({ status: "out", ways, reason });
  } catch (error) {
    if (session.get().status !== "in") session.set({ status: "unknown", reason: messageOf(error) });
  }
}

/** Exchange an API key for a session. Throws Problem. */
export async function signIn(key: string): Promise<void> {
  const me = await call("POST /api/session", { body: { key } });
  const before = session.get();
  const ways = before.status === "in" || before.status === "out" ? before.ways : await call("GET /api/session", {});
  enter(me, ways);
  tabs?.postMessage("changed");
}

export async function signOut(): Promise<void> {
  await call("DELETE /api/session", {});
  access.csrf = "";
  const before = session.get();
  forget();
  if (before.status === "in") session.set({ status: "out", ways: { ...before.ways, me: null }, reason: "" });
  tabs?.postMessage("changed");
}

/** Where to go to sign in at the issuer; the page that is shown now is where one returns to. */
export function issuerAddress(): string {
  const { pathname, search, hash } = window.location;
  return `/api/session/oidc?${new URLSearchParams({ next: pathname + search + hash })}`;
}

tabs?.addEventListener("message", () => void loadSession());

// ── what somebody may do ─────────────────────────────────────────────────────────────────────────────────────────────

export function useSession(): Session {
  return useStore(session);
}

export function useMe(): Me | null {
  const now = useSession();
  return now.status === "in" ? now.me : null;
}

/** Why the user may not call a route, or '' if that is allowed. */
export function useDenied(route: Route): string {
  const me = useMe();
  return me ? because(me, me.denied[route]) : "";
}

/** Why the user may not give a signal, or '' if that is allowed. */
export function useSignalDenied(signal: string): string {
  const me = useMe();
  return me ? because(me, me.denied_signals[signal]) : "";
}

function because(me: Me, reason: string | undefined): string {
  return reason ? `You (${me.name}) may not do this: ${reason}. You have ${me.roles.join(", ") || "no role"}.` : "";
}
