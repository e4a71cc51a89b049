/** Calls of the API, typed by the server's own description of it (`types.ts`). */
import { Store } from "../lib/store.ts";
import { takeEarly } from "./early.ts";
import { Problem, ServerAway } from "./problem.ts";
import type { Routes } from "./types.ts";

export type Route = keyof Routes;
type Empty = Record<string, never>;
type Part<R extends Route, K extends "path" | "query"> = Routes[R][K] extends Empty
  ? { [key in K]?: never }
  : { [key in K]: Routes[R][K] };
type Query<R extends Route> = Routes[R]["query"] extends Empty ? { query?: never } : { query?: Routes[R]["query"] };
type Body<R extends Route> = [Routes[R]["body"]] extends [never] ? { body?: never } : { body: Routes[R]["body"] };
/** `file`: the body of a route that takes one as it is. */
export type Call<R extends Route> = Part<R, "path"> & Query<R> & Body<R> & { signal?: AbortSignal; file?: Blob };
export type Answer<R extends Route> = Routes[R]["answer"];

/** What requests carry for the session, and what happens when it is over. `session.ts` fills it in. */
export const access = {
  csrf: "",
  onUnauthenticated: (_problem: Problem): void => {},
};

/** Whether the last request reached the server. */
export const reachable = new Store(true);

/** Milliseconds that the server's clock is ahead of this one: ages are told by the server's. */
let ahead = 0;

/** Now, by the server's clock. */
export function serverNow(): number {
  return Date.now() + ahead;
}

function noteClock(answer: Response): void {
  const date = Date.parse(answer.headers.get("date") ?? "");
  // The header has whole seconds: a difference below two of them says nothing.
  if (!Number.isNaN(date)) ahead = Math.abs(date - Date.now()) < 2000 ? 0 : date - Date.now();
}

/** The address of a route with its parameters. */
export function addressOf(route: string, path: object | undefined, query: object | undefined): string {
  const given = (path ?? {}) as Record<string, string>;
  const filled = route
    .slice(route.indexOf(" ") + 1)
    .replace(/\{(\w+)(:path)?\}/g, (_, name: string) => encodeURIComponent(given[name] ?? ""));
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value === undefined || value === null || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) params.append(name, String(one));
  }
  return params.size ? `${filled}?${params}` : filled;
}

/** Call a route. Throws Problem or ServerAway; an aborted call throws what `fetch` throws. */
export async function call<R extends Route>(route: R, options: Call<R>): Promise<Answer<R>> {
  const method = route.slice(0, route.indexOf(" "));
  const headers: Record<string, string> = { accept: "application/json" };
  if (options.body !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET" && access.csrf) headers["x-arclog-csrf"] = access.csrf;
  const init: RequestInit = { method, headers, credentials: "same-origin", redirect: "error" };
  if (options.body !== undefined) init.body = JSON.stringify(options.body);
  if (options.file) {
    headers["content-type"] = "application/zip";
    init.body = options.file;
  }
  if (options.signal) init.signal = options.signal;
  const answer = await request(addressOf(route, options.path, options.query), init);
  if (answer.status === 204) return null as Answer<R>;
  const kind = answer.headers.get("content-type") ?? "";
  return (kind.includes("json") ? await answer.json() : await answer.text()) as Answer<R>;
}

/** A request that is answered with success; everything else throws. */
export async function request(address: string, init: RequestInit): Promise<Response> {
  let answer: Response;
  try {
    answer = await (takeEarly(address, init) ?? fetch(address, init));
  } catch (error) {
    if (init.signal?.aborted) throw error;
    reachable.set(false);
    throw new ServerAway();
  }
  reachable.set(true);
  noteClock(answer);
  if (answer.ok) return answer;
  const problem = await Problem.of(answer);
  if (problem.status === 401) access.onUnauthenticated(problem);
  throw problem;
}
