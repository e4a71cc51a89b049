import { useMutation } from "@tanstack/react-query";
import { Download, X } from "lucide-react";
import { memo, type ReactNode, useMemo } from "react";
import { call } from "../../api/client.ts";
import { messageOf } from "../../api/problem.ts";
import { toast } from "../../app/toasts.ts";
import { countText } from "../../lib/numbers.ts";
import { usePaced } from "../../lib/rested.ts";
import { exactText } from "../../lib/time.ts";
import { Button, IconButton } from "../../parts/Button.tsx";
import { CopyAs } from "../../parts/CopyAs.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { Chips, SearchField, Select } from "../../parts/Field.tsx";
import { type Column, VirtualTable } from "../../parts/VirtualTable.tsx";
import { DIALECTS, rangeOf, useMoment, useRunView } from "./context.ts";
import { isBookkeeping, type Line } from "./log.ts";
import styles from "./Run.module.css";

/** A drag through thousands of events is followed so often: each time, all rows in sight are others. */
const FOLLOW_MS = 200;

/** The log of a run, live: rows are made from the outline as they come into sight. */
export function Events(): ReactNode {
  const { selection, causeSeq } = useRunView();
  const seq = usePaced(useMoment().seq, FOLLOW_MS);
  const isPlain = selection.step === undefined && selection.range === undefined;
  return (
    <div className={styles.withBar}>
      <EventBar />
      <EventTable chosen={seq ?? (isPlain ? causeSeq : undefined)} />
    </div>
  );
}

/** Which events are listed, and in which form they are shown and downloaded. */
const EventBar = memo(function EventBar(): ReactNode {
  const { id, log, selection, select } = useRunView();
  const [first, last] = rangeOf(selection.range) ?? [];
  const download = useMutation({
    mutationFn: () => allEvents(id, selection.dialect ?? "canonical"),
    onSuccess: (lines) => saveAs(`${id}.jsonl`, lines),
    onError: (error) => toast({ kind: "failed", text: "The events could not be read", detail: messageOf(error) }),
  });
  return (
    <div className={`${styles.bar} ${styles.eventBar}`}>
      <SearchField
        label="Find events"
        placeholder="Find"
        value={selection.find ?? ""}
        onChange={(find) => select({ find: find || undefined })}
      />
      <Chips
        label="Form of the list"
        chosen={selection.show ? [selection.show] : []}
        options={COMPACT}
        onChange={([show]) => select({ show })}
      />
      {first !== undefined && last !== undefined && (
        <button type="button" className={styles.range} onClick={() => select({ range: undefined })}>
          {countText(first)}–{countText(Math.min(last, log.length))} <X size={12} aria-hidden="true" />
          <span className="hidden-visually">Show events of all times</span>
        </button>
      )}
      <span className={styles.fill} />
      <Select
        label="Names of events"
        value={selection.dialect ?? "canonical"}
        options={NAMES}
        onChange={(dialect) => select({ dialect: dialect === "canonical" ? undefined : dialect })}
      />
      <IconButton
        label={download.isPending ? "Reading events …" : "Download events"}
        icon={<Download size={14} />}
        disabled={download.isPending}
        onClick={() => download.mutate()}
      />
      <CopyAs
        actions={{
          events: {
            cli: ["events", id, ...(selection.dialect ? ["--dialect", selection.dialect] : [])],
            route: "GET /api/executions/{execution_id}/events",
            path: { execution_id: id },
            ...(selection.dialect ? { query: { dialect: selection.dialect } } : {}),
            ...(selection.dialect ? {} : { python: `client.events("${id}", limit=100_000)` }),
          },
        }}
      />
    </div>
  );
});

const COMPACT = [["compact", "Compact"]] as const;
const NAMES = DIALECTS.map((dialect) => [dialect, dialect === "canonical" ? "standard names" : dialect] as const);

/** All events of a run as lines of JSON, page by page. */
async function allEvents(id: string, dialect: string): Promise<string[]> {
  const lines: string[] = [];
  for (let after = 0; ; ) {
    const page = await call("GET /api/executions/{execution_id}/events", {
      path: { execution_id: id },
      query: { after, limit: 1000, dialect },
    });
    for (const event of page.events) lines.push(`${JSON.stringify(event)}\n`);
    if (!page.more) return lines;
    after = page.next;
  }
}

function saveAs(name: string, lines: string[]): void {
  const address = URL.createObjectURL(new Blob(lines, { type: "application/x-ndjson" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

const EventTable = memo(function EventTable({ chosen }: { chosen: number | undefined }): ReactNode {
  const { log, version, selection, select } = useRunView();
  const { step, item, run, show } = selection;
  const find = selection.find?.toLowerCase() ?? "";
  const range = selection.range;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the log grows in place; its version says when
  const rows = useMemo(() => {
    const found: number[] = [];
    const [first, last] = rangeOf(range) ?? [1, log.length];
    for (let seq = first; seq <= Math.min(last, log.length); seq++) {
      const kind = log.kindOf(seq);
      if (step && kind.step !== step) continue;
      if (item && log.itemOf(seq) !== item) continue;
      if (run && log.run[seq - 1] !== run) continue;
      if (show === "compact" && isBookkeeping(kind.type)) continue;
      if (find && !`${kind.type} ${kind.step} ${kind.task}`.toLowerCase().includes(find)) continue;
      found.push(seq);
    }
    return found;
  }, [log, version, step, item, run, show, find, range]);
  const columns = useMemo(() => columnsOf((seq) => log.line(seq)), [log]);
  const isFiltered = Boolean(step || find || range || show);
  return (
    <VirtualTable
      label="Events"
      columns={columns}
      rows={rows}
      keyOf={String}
      placeOf={(key) => placeOf(rows, Number(key))}
      chosen={chosen === undefined ? undefined : String(chosen)}
      card={(seq) => {
        const line = log.line(seq);
        return (
          <div className={styles.card}>
            <span className="cut" data-failed={line.type.endsWith(".failed") || undefined}>
              {line.type}
            </span>
            <span className="quiet small cut">
              {countText(seq)} · {timeText(line)} · {aboutText(line)}
            </span>
          </div>
        );
      }}
      cardHeight={48}
      rowHeight={28}
      onOpen={(seq) => {
        const line = log.line(seq);
        select({
          seq,
          step: line.step || selection.step,
          item: line.item || (line.step === selection.step ? selection.item : undefined),
        });
      }}
      empty={
        <Empty title="No events">
          {isFiltered && log.length > 0 && (
            <Button
              onClick={() =>
                select({
                  step: undefined,
                  item: undefined,
                  run: undefined,
                  find: undefined,
                  range: undefined,
                  show: undefined,
                })
              }
            >
              Show all {countText(log.length)} events
            </Button>
          )}
        </Empty>
      }
    />
  );
});

/** Where a seq is among rows that are in order; -1 when it is not there. */
function placeOf(rows: readonly number[], seq: number): number {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((rows[middle] ?? 0) < seq) low = middle + 1;
    else high = middle;
  }
  return rows[low] === seq ? low : -1;
}

function columnsOf(line: (seq: number) => Line): Column<number>[] {
  return [
    {
      key: "seq",
      title: "Seq",
      width: "3.25rem",
      align: "end",
      cell: (seq) => <span className="quiet">{countText(seq)}</span>,
    },
    { key: "time", title: "Time", width: "6rem", cell: (seq) => <span className="quiet">{timeText(line(seq))}</span> },
    {
      key: "type",
      title: "Event",
      width: "minmax(9rem, 13.5rem)",
      cell: (seq) => (
        <span className="cut" data-failed={line(seq).type.endsWith(".failed") || undefined}>
          {line(seq).type}
        </span>
      ),
    },
    {
      key: "of",
      title: "Step",
      width: "minmax(6rem, 1fr)",
      cell: (seq) => <span className="cut quiet">{aboutText(line(seq))}</span>,
    },
  ];
}

function aboutText(line: Line): string {
  const attempt = line.attempt > 1 ? `attempt ${line.attempt}` : "";
  const run = line.run > 1 ? `#${line.run}` : "";
  return [line.step + run, line.item && `item ${line.item}`, line.task, attempt].filter(Boolean).join(" · ");
}

function timeText(line: Line): string {
  return exactText(line.at).slice(11);
}
