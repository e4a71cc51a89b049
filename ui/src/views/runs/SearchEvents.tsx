import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { SearchX } from "lucide-react";
import { type ReactNode, useMemo, useState } from "react";
import { call, serverNow } from "../../api/client.ts";
import type { EventSearchPage } from "../../api/types.ts";
import { useCrumbs } from "../../app/crumbs.ts";
import { countText } from "../../lib/numbers.ts";
import { Button } from "../../parts/Button.tsx";
import { CopyAs } from "../../parts/CopyAs.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { SearchField, Select } from "../../parts/Field.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { Time } from "../../parts/Time.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import { type Column, VirtualTable } from "../../parts/VirtualTable.tsx";
import { askedOf, ENTITIES, type EventsSearch, type FoundEvent, formOf, foundEvent } from "./eventSearch.ts";
import styles from "./Runs.module.css";

const route = getRouteApi("/runs/events");
const PAGE = 100;
const ENTITY_OPTIONS = [["any", "any entity"] as const, ...ENTITIES.map((entity) => [entity, entity] as const)];
const SPAN_OPTIONS = [
  ["1h", "last hour"],
  ["24h", "last 24 hours"],
  ["7d", "last 7 days"],
  ["30d", "last 30 days"],
  ["any", "any time"],
] as const;

/** Events of all runs, by type, entity, time and a condition. */
export function SearchEvents(): ReactNode {
  useCrumbs([{ text: "Runs", to: "/runs" }, { text: "Search events" }]);
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [type, setType] = useState(search.type ?? "");
  const [where, setWhere] = useState(search.where ?? "");
  const change = (changed: Partial<EventsSearch>): void =>
    void navigate({ search: (before) => ({ ...before, ...changed }), replace: true });
  const key = JSON.stringify(search);
  // biome-ignore lint/correctness/useExhaustiveDependencies: a span is counted from when it was chosen
  const asked = useMemo(() => ({ ...askedOf(search, serverNow()), limit: PAGE }), [key]);
  const pages = useInfiniteQuery({
    queryKey: ["events", asked],
    queryFn: ({ pageParam, signal }) =>
      call("GET /api/events", { query: pageParam ? { ...asked, cursor: pageParam } : asked, signal }),
    initialPageParam: "",
    getNextPageParam: (last: EventSearchPage) => (last.more ? last.next : undefined),
    staleTime: Number.POSITIVE_INFINITY,
    refetchOnWindowFocus: false,
  });
  const rows = useMemo(() => pages.data?.pages.flatMap((page) => page.events.map(foundEvent)) ?? [], [pages.data]);
  return (
    <div className={styles.runs}>
      <h1 className="hidden-visually">Search events</h1>
      <search>
        <form
          className={styles.filters}
          onSubmit={(event) => {
            event.preventDefault();
            change({ type: type.trim() || undefined, where: where.trim() || undefined });
          }}
        >
          <SearchField
            label="Event types"
            placeholder="Types: task.failed, step.failed"
            value={type}
            onChange={setType}
          />
          <Select
            label="Entity"
            value={search.entity ?? "any"}
            options={ENTITY_OPTIONS}
            onChange={(entity) => change({ entity: entity === "any" ? undefined : entity })}
          />
          <Select
            label="Time"
            value={search.span ?? "24h"}
            options={SPAN_OPTIONS}
            onChange={(span) => change({ span: span === "24h" ? undefined : span })}
          />
          <SearchField label="Condition" placeholder={"Condition: step == 'load'"} value={where} onChange={setWhere} />
          <Button type="submit">Search</Button>
          <span className={styles.tools}>
            <CopyAs actions={{ events: formOf(asked) }} />
          </span>
        </form>
      </search>
      {pages.error ? (
        <Trouble what="The events" error={pages.error} retry={() => void pages.refetch()} />
      ) : (
        <VirtualTable
          label="Events"
          columns={COLUMNS}
          rows={rows}
          keyOf={(event) => event.id}
          card={(event) => <Card event={event} />}
          onOpen={(event) =>
            void navigate({ to: "/runs/$id", params: { id: event.run }, search: { seq: event.seq, tab: "events" } })
          }
          onEnd={() => {
            if (pages.hasNextPage && !pages.isFetchingNextPage) void pages.fetchNextPage();
          }}
          rowHeight={32}
          empty={
            pages.isLoading ? (
              <Skeleton lines={12} />
            ) : (
              <Empty title="No matching events" icon={<SearchX size={28} />}>
                Change the types, the time or the condition.
              </Empty>
            )
          }
          foot={pages.isFetchingNextPage ? <p className={styles.foot}>Loading more events …</p> : null}
        />
      )}
    </div>
  );
}

const COLUMNS: Column<FoundEvent>[] = [
  { key: "time", title: "Time", width: "7.5rem", cell: (event) => <Time at={event.at} /> },
  { key: "run", title: "Run", width: "minmax(10rem, 12rem)", cell: (event) => <RunLink event={event} /> },
  {
    key: "type",
    title: "Event",
    width: "minmax(8rem, 11rem)",
    cell: (event) => (
      <span className="cut" data-failed={event.isError || undefined}>
        {event.type}
      </span>
    ),
  },
  { key: "of", title: "Step", width: "minmax(6rem, 12rem)", cell: (event) => <span className="cut">{event.of}</span> },
  {
    key: "message",
    title: "Error",
    width: "minmax(8rem, 3fr)",
    cell: (event) => (
      <span className={`${styles.error} cut`} title={event.message}>
        {event.message}
      </span>
    ),
  },
];

function RunLink({ event }: { event: FoundEvent }): ReactNode {
  return (
    <span className="cut">
      <Link to="/runs/$id" params={{ id: event.run }} search={{ seq: event.seq, tab: "events" }}>
        {event.run}
      </Link>{" "}
      <span className="quiet small">{countText(event.seq)}</span>
    </span>
  );
}

function Card({ event }: { event: FoundEvent }): ReactNode {
  return (
    <div className={styles.card}>
      <span className="cut">
        {event.type} {event.of && `· ${event.of}`}
      </span>
      <span className="quiet small cut">
        <Time at={event.at} /> · {event.run} · {event.message}
      </span>
    </div>
  );
}
