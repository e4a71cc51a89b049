import { memo, type ReactNode, useMemo } from "react";
import { countText } from "../../lib/numbers.ts";
import { usePaced } from "../../lib/rested.ts";
import { exactText } from "../../lib/time.ts";
import { Empty } from "../../parts/Empty.tsx";
import { type Column, VirtualTable } from "../../parts/VirtualTable.tsx";
import { useMoment, useRunView } from "./context.ts";
import type { Line } from "./log.ts";
import styles from "./Run.module.css";

const COLUMNS: Column<number>[] = [];

/** A drag through thousands of events is followed so often: each time, all rows in sight are others. */
const FOLLOW_MS = 200;

/** The log of a run, live: rows are made from the outline as they come into sight. */
export function Events(): ReactNode {
  const seq = usePaced(useMoment().seq, FOLLOW_MS);
  return <EventTable chosen={seq} />;
}

const EventTable = memo(function EventTable({ chosen }: { chosen: number | undefined }): ReactNode {
  const { log, version, selection, select } = useRunView();
  const { step, item, run } = selection;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the log grows in place; its version says when
  const rows = useMemo(() => {
    const found: number[] = [];
    for (let seq = 1; seq <= log.length; seq++) {
      if (step && log.kindOf(seq).step !== step) continue;
      if (item && log.itemOf(seq) !== item) continue;
      if (run && log.run[seq - 1] !== run) continue;
      found.push(seq);
    }
    return found;
  }, [log, version, step, item, run]);
  const columns = useMemo(() => columnsOf((seq) => log.line(seq)), [log]);
  return (
    <VirtualTable
      label="Events"
      columns={columns ?? COLUMNS}
      rows={rows}
      keyOf={String}
      placeOf={(key) => placeOf(rows, Number(key))}
      chosen={chosen === undefined ? undefined : String(chosen)}
      card={(seq) => {
        const line = log.line(seq);
        return (
          <div className={styles.card}>
            <span className="cut">{line.type}</span>
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
      empty={<Empty title="No events" />}
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
