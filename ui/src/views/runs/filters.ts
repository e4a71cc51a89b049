/** The filters of the list of runs, as they stand in its address. */
import type { RunsAsked } from "../../api/queries.ts";

export const RUN_STATES = ["RUNNING", "PENDING", "COMPLETED", "FAILED", "CANCELLED"] as const;
export type RunState = (typeof RUN_STATES)[number];

export const SPANS = ["1h", "24h", "7d", "30d"] as const;
export type Span = (typeof SPANS)[number];

export const SPAN_MS: Record<Span, number> = {
  "1h": 3_600_000,
  "24h": 86_400_000,
  "7d": 604_800_000,
  "30d": 2_592_000_000,
};

export interface RunsSearch {
  q?: string | undefined;
  state?: RunState[] | undefined;
  path?: string | undefined;
  span?: Span | undefined;
  since?: string | undefined;
  until?: string | undefined;
  called?: true | undefined;
  parent?: string | undefined;
  origin?: string | undefined;
}

/** What the server is asked for. A span begins at a whole minute, so that the question stays the same for a while. */
export function askedOf(search: RunsSearch, now: number): NonNullable<RunsAsked> {
  const asked: NonNullable<RunsAsked> = {};
  if (search.q) asked.q = search.q;
  if (search.state) asked.state = search.state;
  if (search.path) asked.path = search.path;
  if (search.origin) asked.origin = search.origin;
  if (search.parent) asked.parent = search.parent;
  else if (!search.called) asked.level = "top";
  if (search.since) asked.since = search.since;
  else if (search.span)
    asked.since = new Date(Math.floor((now - SPAN_MS[search.span]) / 60_000) * 60_000).toISOString();
  if (search.until) asked.until = search.until;
  return asked;
}

export function isFiltered(search: RunsSearch): boolean {
  return Boolean(
    search.q ||
      search.state ||
      search.path ||
      search.span ||
      search.since ||
      search.until ||
      search.parent ||
      search.origin,
  );
}
