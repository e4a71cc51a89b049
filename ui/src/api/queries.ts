/** What views ask the server for: a key, a call, how often it is asked again. Keys begin with the thing's name. */
import { keepPreviousData, QueryClient, queryOptions } from "@tanstack/react-query";
import { call } from "./client.ts";
import { Problem } from "./problem.ts";
import { session } from "./session.ts";
import type { Origin, Routes } from "./types.ts";

/** Lists and counts are looked at again this often while somebody looks at them. */
export const LOOK_MS = 4000;
const SELDOM_MS = 15_000;
/** Runs that statistics are made of, at most: as many as the server takes. */
export const STATS_RUNS = 1000;

/** While the session is over nothing is asked: each try would count as a failed one. */
function isSignedIn(): boolean {
  const now = session.get();
  return now.status === "in" && !now.expired;
}

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 2000,
      gcTime: 300_000,
      // A server that is away is asked again; what it refused stays refused.
      retry: (count, error) => !(error instanceof Problem && error.status < 500 && error.status !== 429) && count < 2,
      retryDelay: (count) => Math.min(1000 * 2 ** count, 8000),
      placeholderData: keepPreviousData,
      refetchOnWindowFocus: true,
      // Loopback needs no network; whether the server is there shows when it is asked.
      networkMode: "always",
    },
    mutations: { networkMode: "always" },
  },
});

/** How often a query looks again. */
function every(ms: number): () => number | false {
  return () => (isSignedIn() ? ms : false);
}

export type RunsAsked = Routes["GET /api/executions"]["query"];

export function runsQuery(query: RunsAsked) {
  return queryOptions({
    queryKey: ["runs", query],
    queryFn: ({ signal }) => call("GET /api/executions", { query, signal }),
    refetchInterval: every(LOOK_MS),
  });
}

export function activityQuery(hours: number) {
  return queryOptions({
    queryKey: ["activity", hours],
    queryFn: ({ signal }) => call("GET /api/activity", { query: { hours }, signal }),
    refetchInterval: every(SELDOM_MS),
  });
}

export const failingQuery = queryOptions({
  queryKey: ["failing"],
  queryFn: ({ signal }) => call("GET /api/failing", { query: { limit: 20 }, signal }),
  refetchInterval: every(LOOK_MS),
});

export const stuckQuery = queryOptions({
  queryKey: ["stuck"],
  queryFn: ({ signal }) => call("GET /api/stuck", { query: { limit: 10 }, signal }),
  refetchInterval: every(LOOK_MS),
});

export const leasesQuery = queryOptions({
  queryKey: ["leases"],
  queryFn: ({ signal }) => call("GET /api/leases", { query: { limit: 100 }, signal }),
  refetchInterval: every(LOOK_MS),
});

export function approvalsQuery(limit: number) {
  return queryOptions({
    queryKey: ["approvals", limit],
    queryFn: ({ signal }) => call("GET /api/approvals", { query: { limit }, signal }),
    refetchInterval: every(LOOK_MS),
  });
}

/** What one run waits for somebody to approve. */
export function approvalsOfQuery(id: string) {
  const before = String(BigInt(id) - 1n);
  return queryOptions({
    queryKey: ["run", id, "approvals"],
    queryFn: async ({ signal }) => {
      const found = await call("GET /api/approvals", { query: { after: before, limit: 1 }, signal });
      return found.approvals.filter((one) => one.run.execution_id === id);
    },
  });
}

export function upcomingQuery(limit: number) {
  return queryOptions({
    queryKey: ["schedules", "next", limit],
    queryFn: ({ signal }) => call("GET /api/schedules", { query: { order: "next", limit }, signal }),
    refetchInterval: every(SELDOM_MS),
  });
}

/** Where a run comes from, which its first event says; null for one that began by itself. */
export function originQuery(id: string) {
  return queryOptions({
    queryKey: ["origin", id],
    queryFn: async ({ signal }): Promise<Origin | null> => {
      const page = await call("GET /api/executions/{execution_id}/events", {
        path: { execution_id: id },
        query: { limit: 1 },
        signal,
      });
      const payload = page.events[0]?.payload as { origin?: Origin } | undefined;
      return payload?.origin ?? null;
    },
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export function summaryQuery(id: string) {
  return queryOptions({
    queryKey: ["run", id, "summary"],
    queryFn: ({ signal }) => call("GET /api/executions/{execution_id}", { path: { execution_id: id }, signal }),
  });
}

/** The run as lists show it: name, version, times. */
export function runQuery(id: string) {
  return queryOptions({
    queryKey: ["run", id, "listed"],
    queryFn: async ({ signal }) => {
      const found = await call("GET /api/executions", { query: { q: id, limit: 1 }, signal });
      const run = found.executions.find((one) => one.execution_id === id);
      if (!run) throw new Problem(404, "NotFound", `there is no run ${id} that you may see`);
      return run;
    },
  });
}

export function whyQuery(id: string) {
  return queryOptions({
    queryKey: ["run", id, "why"],
    queryFn: ({ signal }) => call("GET /api/executions/{execution_id}/why", { path: { execution_id: id }, signal }),
  });
}

export function graphQuery(id: string) {
  return queryOptions({
    queryKey: ["plan", id],
    queryFn: ({ signal }) => call("GET /api/executions/{execution_id}/graph", { path: { execution_id: id }, signal }),
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export function sourceQuery(id: string) {
  return queryOptions({
    queryKey: ["source", id],
    queryFn: ({ signal }) => call("GET /api/executions/{execution_id}/source", { path: { execution_id: id }, signal }),
    staleTime: Number.POSITIVE_INFINITY,
    placeholderData: (): undefined => undefined,
  });
}

/** The run as it was after an event; that never changes. */
export function stateQuery(id: string, at: number) {
  return queryOptions({
    queryKey: ["state", id, at],
    queryFn: ({ signal }) =>
      call("GET /api/executions/{execution_id}/state", { path: { execution_id: id }, query: { at }, signal }),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 30_000,
  });
}

/** What is used of an event's envelope. */
export interface RunEvent {
  seq: number;
  event_type: string;
  timestamp: string;
  status: string;
  step?: string;
  task?: string;
  attempt?: number;
  duration_ms?: number;
  payload?: Record<string, unknown>;
}

/** One event with its payload; that never changes. */
export function eventQuery(id: string, seq: number, dialect = "canonical") {
  return queryOptions({
    queryKey: ["event", id, seq, dialect],
    queryFn: async ({ signal }) => {
      const query = { after: seq - 1, limit: 1, ...(dialect === "canonical" ? {} : { dialect }) };
      const page = await call("GET /api/executions/{execution_id}/events", {
        path: { execution_id: id },
        query,
        signal,
      });
      return page.events[0] as unknown as RunEvent;
    },
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 60_000,
    placeholderData: (): undefined => undefined,
  });
}

/** Seqs that are so near to each other are asked for together, with what is between them. */
const NEAR = 16;

/** Several events with their payloads, in order. */
export function eventsQuery(id: string, seqs: readonly number[]) {
  return queryOptions({
    queryKey: ["events", id, seqs],
    queryFn: async ({ signal }) => {
      const ranges: [number, number][] = [];
      for (const seq of seqs) {
        const open = ranges.at(-1);
        if (open && seq - open[1] <= NEAR) open[1] = seq;
        else ranges.push([seq, seq]);
      }
      const path = { execution_id: id };
      const pages = await Promise.all(
        ranges.map(([first, last]) => {
          const query = { after: first - 1, limit: last - first + 1 };
          return call("GET /api/executions/{execution_id}/events", { path, query, signal });
        }),
      );
      const wanted = new Set(seqs);
      return pages.flatMap((page) => page.events as unknown as RunEvent[]).filter((event) => wanted.has(event.seq));
    },
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 60_000,
  });
}

/** The log checked against the code of today; asked for when somebody wants to know. */
export function replayQuery(id: string) {
  return queryOptions({
    queryKey: ["replay", id],
    queryFn: ({ signal }) => call("GET /api/executions/{execution_id}/replay", { path: { execution_id: id }, signal }),
    staleTime: Number.POSITIVE_INFINITY,
    refetchOnWindowFocus: false,
    placeholderData: (): undefined => undefined,
  });
}

/** Where a value of a run came from. */
export function traceQuery(id: string, value: string) {
  return queryOptions({
    queryKey: ["trace", id, value],
    queryFn: ({ signal }) =>
      call("GET /api/executions/{execution_id}/trace", { path: { execution_id: id }, query: { value }, signal }),
    staleTime: 10_000,
    refetchOnWindowFocus: false,
    placeholderData: (): undefined => undefined,
  });
}

/** What data a run read and wrote, as OpenLineage events. */
export function lineageQuery(id: string) {
  return queryOptions({
    queryKey: ["lineage", id],
    queryFn: ({ signal }) => call("GET /api/executions/{execution_id}/lineage", { path: { execution_id: id }, signal }),
    staleTime: 10_000,
    refetchOnWindowFocus: false,
    placeholderData: (): undefined => undefined,
  });
}

/** Two runs side by side. */
export function diffQuery(a: string, b: string) {
  return queryOptions({
    queryKey: ["diff", a, b],
    queryFn: ({ signal }) =>
      call("GET /api/executions/{execution_id}/diff", { path: { execution_id: a }, query: { with: b }, signal }),
    placeholderData: (): undefined => undefined,
  });
}

export function catalogQuery(prefix: string, archived: boolean) {
  return queryOptions({
    queryKey: ["catalog", prefix, archived],
    queryFn: ({ signal }) => call("GET /api/catalog", { query: { prefix, archived, limit: 1000 }, signal }),
    refetchInterval: every(SELDOM_MS),
  });
}

/** One version of a playbook; 0 is the newest. */
export function versionQuery(path: string, version: number) {
  return queryOptions({
    queryKey: ["catalog", "version", path, version],
    queryFn: ({ signal }) => call("GET /api/catalog/show", { query: { path, version }, signal }),
    placeholderData: (): undefined => undefined,
  });
}

export function versionsQuery(path: string) {
  return queryOptions({
    queryKey: ["catalog", "versions", path],
    queryFn: ({ signal }) => call("GET /api/catalog/versions", { query: { path, limit: 200 }, signal }),
  });
}

export function versionDiffQuery(path: string, from: number, to: number) {
  return queryOptions({
    queryKey: ["catalog", "diff", path, from, to],
    queryFn: ({ signal }) => call("GET /api/catalog/diff", { query: { path, from, to }, signal }),
    staleTime: Number.POSITIVE_INFINITY,
  });
}

/** What the checker finds in a text, and the graph that it makes. */
export function checkQuery(playbook: string) {
  return queryOptions({
    queryKey: ["check", playbook],
    queryFn: ({ signal }) => call("POST /api/check", { body: { playbook }, signal }),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 30_000,
  });
}

/** The newest runs of a playbook, for a glance. */
export function lastRunsQuery(path: string, limit = 20) {
  return queryOptions({
    queryKey: ["runs", "of", path, limit],
    queryFn: ({ signal }) => call("GET /api/executions", { query: { path, level: "top", limit }, signal }),
    refetchInterval: every(LOOK_MS * 2),
    placeholderData: (): undefined => undefined,
  });
}

/** How the latest runs of a playbook went. The server refuses (404) when there is none. */
export function statsQuery(path: string, since: string) {
  return queryOptions({
    queryKey: ["stats", path, since],
    queryFn: ({ signal }) => call("GET /api/stats", { query: { path, since, limit: STATS_RUNS }, signal }),
    refetchInterval: every(4 * SELDOM_MS),
    // Another period of the same playbook stays until the new one is there; another playbook does not.
    placeholderData: (before, query) => (query?.queryKey[1] === path ? before : undefined),
  });
}

export const schedulesQuery = queryOptions({
  queryKey: ["schedules", "all"],
  queryFn: ({ signal }) => call("GET /api/schedules", { query: { limit: 1000 }, signal }),
  refetchInterval: every(LOOK_MS),
});

export const poolsQuery = queryOptions({
  queryKey: ["pools"],
  queryFn: ({ signal }) => call("GET /api/pools", { signal }),
  refetchInterval: every(LOOK_MS),
});

export const workersQuery = queryOptions({
  queryKey: ["workers"],
  queryFn: ({ signal }) => call("GET /api/workers", { signal }),
  refetchInterval: every(LOOK_MS),
});

export const resourcesQuery = queryOptions({
  queryKey: ["resources"],
  queryFn: ({ signal }) => call("GET /api/resources", { signal }),
  refetchInterval: every(LOOK_MS),
});

/** Counters of this server, in Prometheus' text format. */
export const metricsQuery = queryOptions({
  queryKey: ["metrics"],
  queryFn: ({ signal }) => call("GET /metrics", { signal }),
  refetchInterval: every(LOOK_MS),
  gcTime: 0,
});

export const credentialsQuery = queryOptions({
  queryKey: ["credentials"],
  queryFn: ({ signal }) => call("GET /api/credentials", { signal }),
});

export const keysQuery = queryOptions({
  queryKey: ["keys"],
  queryFn: ({ signal }) => call("GET /api/keys", { signal }),
});

export const auditQuery = queryOptions({
  queryKey: ["audit"],
  queryFn: ({ signal }) => call("GET /api/audit", { query: { limit: 200 }, signal }),
  refetchInterval: every(SELDOM_MS),
});

export const settingsQuery = queryOptions({
  queryKey: ["settings"],
  queryFn: ({ signal }) => call("GET /api/settings", { signal }),
});

export const doctorQuery = queryOptions({
  queryKey: ["doctor"],
  queryFn: ({ signal }) => call("GET /api/doctor", { signal }),
  staleTime: 10_000,
});
