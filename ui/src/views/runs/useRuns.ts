/** The list of runs, as far as somebody has scrolled. */
import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useState } from "react";
import { call, serverNow } from "../../api/client.ts";
import { type RunsAsked, runsQuery } from "../../api/queries.ts";
import type { Executions, ListedRun } from "../../api/types.ts";
import { askedOf, type RunsSearch } from "./filters.ts";

const PAGE = 100;

/**
 * Pages are loaded once, as they come into sight; what is looked at again and again is the page in sight. So a list costs the
 * server the same however long it is, and runs in sight are as they are now.
 */
export function useRuns(search: RunsSearch) {
  const key = JSON.stringify({ ...search, focus: undefined });
  // biome-ignore lint/correctness/useExhaustiveDependencies: a span is counted from when it was chosen
  const asked: NonNullable<RunsAsked> = useMemo(() => ({ ...askedOf(search, serverNow()), limit: PAGE }), [key]);
  const queries = useQueryClient();
  const pagesKey = useMemo(() => ["run pages", asked], [asked]);
  const pages = useInfiniteQuery({
    queryKey: pagesKey,
    queryFn: ({ pageParam, signal }) => call("GET /api/executions", { query: { ...asked, before: pageParam }, signal }),
    initialPageParam: "",
    getNextPageParam: (last: Executions) => last.next ?? undefined,
    staleTime: Number.POSITIVE_INFINITY,
    refetchOnWindowFocus: false,
  });

  // The page in sight, by the cursor that it was asked for with.
  const [sight, setSight] = useState(0);
  const cursor = String(pages.data?.pageParams[sight] ?? "");
  const page = pages.data?.pages[sight];
  const fresh = useQuery({
    ...runsQuery(cursor ? { ...asked, before: cursor } : asked),
    enabled: pages.isSuccess,
    // It was loaded a moment ago: it is asked for again when it is due.
    ...(page ? { initialData: page, initialDataUpdatedAt: pages.dataUpdatedAt } : {}),
  });

  const loaded = pages.data?.pages;
  const fetched = fresh.data;
  const rows = useMemo(
    () => merged(loaded?.flatMap((page) => page.executions) ?? [], fetched?.executions ?? []),
    [loaded, fetched],
  );

  // More new runs than a page has came at once: what is between is not known, so the list begins anew.
  const first = loaded?.[0]?.executions[0]?.execution_id;
  const oldest = fetched?.executions.at(-1)?.execution_id;
  const gap =
    cursor === "" && Boolean(fetched?.next) && first !== undefined && oldest !== undefined && newer(oldest, first);
  useEffect(() => {
    if (gap) void queries.resetQueries({ queryKey: pagesKey });
  }, [gap, queries, pagesKey]);

  const { hasNextPage, isFetchingNextPage, fetchNextPage } = pages;
  const loadMore = useCallback(() => {
    if (hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [hasNextPage, isFetchingNextPage, fetchNextPage]);
  const onSight = useCallback((index: number) => setSight(Math.max(0, Math.floor(index / PAGE))), []);
  const last = loaded?.at(-1);
  return {
    rows,
    asked,
    loadMore,
    onSight,
    error: pages.error ?? fresh.error,
    isLoading: pages.isPending,
    isFetchingNextPage,
    hasNextPage,
    /** a search has looked at as many runs as it may at a time, and found little */
    isSparse: Boolean(search.q && last?.next && last.executions.length < PAGE),
    refetch: () => void pages.refetch(),
  };
}

/** Ids are times: the longer, then the larger one, is newer. */
export function newer(a: string, b: string): boolean {
  return a.length === b.length ? a > b : a.length > b.length;
}

/** What is known twice is taken as it was seen last; newest first. */
export function merged(known: ListedRun[], seen: ListedRun[]): ListedRun[] {
  const byId = new Map(known.map((run) => [run.execution_id, run]));
  for (const run of seen) byId.set(run.execution_id, run);
  return [...byId.values()].sort((a, b) =>
    a.execution_id === b.execution_id ? 0 : newer(a.execution_id, b.execution_id) ? -1 : 1,
  );
}
