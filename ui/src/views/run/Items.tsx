import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo, useState } from "react";
import { originQuery } from "../../api/queries.ts";
import { countText, plural } from "../../lib/numbers.ts";
import type { State as StateName } from "../../lib/states.ts";
import { spanText } from "../../lib/time.ts";
import { Empty } from "../../parts/Empty.tsx";
import { Chips, Select } from "../../parts/Field.tsx";
import { State } from "../../parts/State.tsx";
import { type Column, VirtualTable } from "../../parts/VirtualTable.tsx";
import { useRunView } from "./context.ts";
import styles from "./Run.module.css";
import { isKept, type Span } from "./spans.ts";

const FILTERS = [
  ["failed", "failed"],
  ["running", "running"],
  ["done", "done"],
] as const;

const ORDERS = [
  ["failed", "failed first"],
  ["longest", "longest first"],
  ["item", "by number"],
] as const;
type Order = (typeof ORDERS)[number][0];
/** 3.10 comes after 3.9. */
const byNumber = new Intl.Collator("en", { numeric: true });

/** Items of loops, failed ones first; of a retry or fork, then those that ran here. */
export function Items(): ReactNode {
  const { id, log, steps, selection, select } = useRunView();
  const origin = useQuery(originQuery(id));
  /** events that this run took over from another one */
  const taken = origin.isPlaceholderData ? 0 : (origin.data?.events ?? 0);
  const [states, setStates] = useState<StateName[]>([]);
  const [order, setOrder] = useState<Order>("failed");
  const now = log.at.at(-1) ?? 0;
  const all = useMemo(() => {
    const found = steps
      .filter((step) => !selection.step || step.step === selection.step)
      .flatMap((step) => [...step.items.values()]);
    const rank = (item: Span): number => (item.state === "failed" ? 0 : isKept(item, taken) ? 2 : 1);
    const took = (item: Span): number => (item.to ?? now) - item.from;
    if (order === "item") return found.sort((a, b) => a.run - b.run || byNumber.compare(a.item, b.item));
    if (order === "longest") return found.sort((a, b) => took(b) - took(a));
    return found.sort((a, b) => rank(a) - rank(b));
  }, [steps, selection.step, taken, order, now]);
  const loops = new Set(all.map((item) => item.step)).size;
  const rows = useMemo(() => (states.length ? all.filter((item) => states.includes(item.state)) : all), [all, states]);
  const columns = useMemo<Column<Span>[]>(
    () => [
      { key: "state", title: "State", width: "6rem", cell: (item) => <State state={item.state} /> },
      { key: "item", title: "Item", width: loops > 1 ? "5rem" : "minmax(5rem, 1fr)", cell: (item) => item.item },
      ...(loops > 1
        ? [
            {
              key: "step",
              title: "Step",
              width: "minmax(4rem, 1fr)",
              cell: (item: Span) => <span className="cut quiet">{item.step}</span>,
            },
          ]
        : []),
      ...(taken
        ? [
            {
              key: "where",
              title: "Result",
              width: "5rem",
              cell: (item: Span) => <span className="quiet">{isKept(item, taken) ? "kept" : "ran here"}</span>,
            },
          ]
        : []),
      {
        key: "tries",
        title: "Attempts",
        width: "5rem",
        align: "end",
        cell: (item) => countText(item.segments.filter((one) => one.kind !== "backoff").length),
      },
      {
        key: "took",
        title: "Duration",
        width: "5rem",
        align: "end",
        cell: (item) => spanText((item.to ?? now) - item.from),
      },
    ],
    [now, taken, loops],
  );
  const kept = taken ? rows.filter((item) => isKept(item, taken)).length : 0;
  const chosen = all.find((one) => one.item === selection.item && one.step === selection.step);
  return (
    <div className={styles.withBar}>
      <div className={styles.bar}>
        <Chips
          label="Filter items by state"
          chosen={states}
          options={FILTERS}
          onChange={(next) => setStates(next as StateName[])}
        />
        <Select label="Order of items" value={order} options={ORDERS} onChange={setOrder} />
        <span className="quiet small">
          {plural(rows.length, "item")}
          {taken > 0 && `: ${countText(kept)} kept, ${countText(rows.length - kept)} ran here`}
        </span>
      </div>
      <VirtualTable
        label="Items"
        columns={columns}
        rows={rows}
        keyOf={(item) => `${item.step} ${item.run} ${item.item}`}
        chosen={chosen ? `${chosen.step} ${chosen.run} ${chosen.item}` : undefined}
        card={(item) => (
          <div className={styles.card}>
            <State state={item.state} text={`item ${item.item}`} />
            <span className="quiet small">
              {taken > 0 && (isKept(item, taken) ? "kept · " : "ran here · ")}
              {spanText((item.to ?? now) - item.from)}
            </span>
          </div>
        )}
        cardHeight={48}
        rowHeight={28}
        onOpen={(item) =>
          select({
            step: item.step,
            run: item.run > 1 ? item.run : undefined,
            item: item.item,
            seq: item.last || undefined,
          })
        }
        empty={<Empty title="No items" />}
      />
    </div>
  );
}
