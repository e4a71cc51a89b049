import { type ReactNode, useCallback, useMemo, useState } from "react";
import { addressOf } from "../../api/client.ts";
import { useStream } from "../../api/useStream.ts";
import { exactText, millis } from "../../lib/time.ts";
import { Empty } from "../../parts/Empty.tsx";
import { SearchField } from "../../parts/Field.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { type Column, VirtualTable } from "../../parts/VirtualTable.tsx";
import { useRunView } from "./context.ts";
import styles from "./Run.module.css";

interface LogLine {
  position: number;
  timestamp: string;
  step?: string;
  task?: string;
  iteration?: string | number | null;
  stream?: string;
  text: string;
}

/** What tasks printed, live; of the selected step and item alone when there is one. */
export function Logs(): ReactNode {
  const { id, selection } = useRunView();
  const [wanted, setWanted] = useState("");
  const address = addressOf(
    "GET /api/executions/{execution_id}/logs/stream",
    { execution_id: id },
    {
      step: selection.step,
      iteration: selection.item,
    },
  );
  return (
    <div className={styles.withBar}>
      <div className={styles.bar}>
        <SearchField label="Search the log" placeholder="Search the log" value={wanted} onChange={setWanted} />
      </div>
      <Lines key={address} address={address} wanted={wanted} />
    </div>
  );
}

const COLUMNS: Column<LogLine>[] = [
  { key: "time", title: "Time", width: "7rem", cell: (line) => <span className="quiet">{timeText(line)}</span> },
  {
    key: "of",
    title: "Of",
    width: "minmax(6rem, 0.5fr)",
    cell: (line) => <span className="cut quiet">{[line.step, line.task].filter(Boolean).join(" · ")}</span>,
  },
  {
    key: "text",
    title: "Line",
    width: "minmax(10rem, 2fr)",
    cell: (line) => (
      <bdi className={`${styles.line} cut mono`} data-stream={line.stream} title={line.text.slice(0, 2000)}>
        {line.text.slice(0, 2000)}
      </bdi>
    ),
  },
];

function Lines({ address, wanted }: { address: string; wanted: string }): ReactNode {
  const [lines, setLines] = useState<LogLine[]>([]);
  const { state } = useStream<LogLine>(
    address,
    0,
    useCallback((more: LogLine[]) => setLines((before) => before.concat(more)), []),
  );
  const rows = useMemo(() => {
    const text = wanted.toLowerCase();
    return text ? lines.filter((line) => line.text.toLowerCase().includes(text)) : lines;
  }, [lines, wanted]);
  return (
    <VirtualTable
      label="Lines"
      columns={COLUMNS}
      rows={rows}
      keyOf={(line) => String(line.position)}
      card={(line) => (
        <div className={styles.card}>
          <bdi className="cut mono">{line.text.slice(0, 2000)}</bdi>
          <span className="quiet small cut">
            {timeText(line)} · {line.step}
          </span>
        </div>
      )}
      cardHeight={48}
      rowHeight={24}
      empty={
        state === "connecting" ? (
          <Skeleton lines={6} height={1.5} />
        ) : (
          <Empty title={wanted ? "No matching lines" : "No output"}>
            Output of <code>print()</code> in Python tasks, and stdout and stderr of shell tasks, appear here.
          </Empty>
        )
      }
    />
  );
}

function timeText(line: LogLine): string {
  return exactText(millis(line.timestamp)).slice(11);
}
