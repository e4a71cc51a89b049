import { useVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useKeys } from "../lib/keys.ts";
import { useNarrow } from "../lib/narrow.ts";
import styles from "./VirtualTable.module.css";

export interface Column<Row> {
  key: string;
  title: ReactNode;
  /** a track of the grid, e.g. "minmax(10rem, 2fr)" */
  width: string;
  cell: (row: Row) => ReactNode;
  align?: "end";
}

export interface Selection {
  chosen: ReadonlySet<string>;
  /** with shift: everything from the last one that was chosen */
  toggle: (key: string, range: boolean) => void;
  /** what a row is called, for screen readers */
  label: (key: string) => string;
}

interface Props<Row> {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  keyOf: (row: Row) => string;
  /** where the row with a key is, -1 for nowhere; looked for among all rows when it is left out */
  placeOf?: (key: string) => number;
  /** a row on a narrow screen, where columns have no room */
  card: (row: Row) => ReactNode;
  onOpen?: (row: Row) => void;
  /** the row that is selected elsewhere: it comes into sight */
  chosen?: string | undefined;
  selection?: Selection;
  /** called when the end comes into sight */
  onEnd?: (() => void) | undefined;
  /** what stands behind the last row */
  foot?: ReactNode;
  /** in the place of rows when there are none */
  empty?: ReactNode;
  /** what is in sight, told when it changes */
  onSight?: (first: number, last: number) => void;
  rowHeight?: number;
  cardHeight?: number;
}

/** A table of any length: only the rows in sight are in the page. `j` and `k` move, `Enter` opens, `x` selects. */
export function VirtualTable<Row>(props: Props<Row>): ReactNode {
  const { label, columns, rows, keyOf, card, onOpen, selection, onEnd, foot, empty, onSight, chosen } = props;
  const narrow = useNarrow();
  const scroller = useRef<HTMLDivElement>(null);
  const height = narrow ? (props.cardHeight ?? 68) : (props.rowHeight ?? 40);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => height,
    overscan: 12,
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: measured anew when the height of all rows changes
  useEffect(() => virtual.measure(), [height]);

  const items = virtual.getVirtualItems();
  const first = items[0]?.index ?? 0;
  const last = items.at(-1)?.index ?? -1;
  useEffect(() => {
    if (last >= rows.length - 1) onEnd?.();
    onSight?.(first, last);
  }, [first, last, rows.length, onEnd, onSight]);

  const [current, setCurrent] = useState<string | null>(null);
  const placeOf = props.placeOf ?? ((key: string) => rows.findIndex((row) => keyOf(row) === key));
  const at = current === null ? -1 : placeOf(current);
  const move = useCallback(
    (by: number) => {
      const next = Math.min(Math.max(at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by, 0), rows.length - 1);
      const row = rows[next];
      if (row === undefined) return;
      setCurrent(keyOf(row));
      virtual.scrollToIndex(next, { align: "auto" });
    },
    [at, rows, keyOf, virtual],
  );
  // biome-ignore lint/correctness/useExhaustiveDependencies: it is looked for anew when rows change
  const isThere = useMemo(() => chosen !== undefined && placeOf(chosen) >= 0, [chosen, rows]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: scrolled when the choice changes or comes in, not when rows do
  useEffect(() => {
    if (chosen === undefined) return;
    setCurrent(chosen);
    const place = placeOf(chosen);
    if (place >= 0) virtual.scrollToIndex(place, { align: place >= first && place <= last ? "auto" : "center" });
  }, [chosen, isThere]);
  const row = at >= 0 ? rows[at] : undefined;
  useKeys(label, [
    { keys: "j", text: "next row", run: () => move(1) },
    { keys: "k", text: "previous row", run: () => move(-1) },
    { keys: "Enter", text: "open the row", run: () => row && onOpen?.(row) },
    ...(selection
      ? [{ keys: "x", text: "select the row", run: () => row !== undefined && selection.toggle(keyOf(row), false) }]
      : []),
  ]);

  const tracks = `${selection ? "2.25rem " : ""}${columns.map((column) => column.width).join(" ")}`;
  return (
    <div className={styles.scroller} ref={scroller} tabIndex={0} role="group" aria-label={label}>
      <div role="table" aria-label={label} aria-rowcount={rows.length + 1} className={styles.table}>
        {!narrow && (
          <div role="row" aria-rowindex={1} className={styles.head} style={{ gridTemplateColumns: tracks }}>
            {selection && (
              <span role="columnheader">
                <span className="hidden-visually">Selected</span>
              </span>
            )}
            {columns.map((column) => (
              <span key={column.key} role="columnheader" className={column.align ? styles.end : undefined}>
                {column.title}
              </span>
            ))}
          </div>
        )}
        <div role="rowgroup" className={styles.rows} style={{ height: virtual.getTotalSize() }}>
          {items.map((item) => {
            const one = rows[item.index];
            if (one === undefined) return null;
            const key = keyOf(one);
            return (
              // biome-ignore lint/a11y/useKeyWithClickEvents: Enter opens the current row
              <div
                key={key}
                role="row"
                aria-rowindex={item.index + 2}
                aria-selected={selection ? selection.chosen.has(key) : undefined}
                data-current={key === current}
                data-chosen={key === chosen || undefined}
                className={`${styles.row} ${narrow ? styles.card : ""}`}
                style={{
                  gridTemplateColumns: narrow ? (selection ? "2.25rem 1fr" : "1fr") : tracks,
                  height: item.size,
                  transform: `translateY(${item.start}px)`,
                }}
                onClick={(event) => {
                  setCurrent(key);
                  const inside = event.target instanceof Element && event.target.closest("a, button, input, label");
                  if (!inside && !window.getSelection()?.toString()) onOpen?.(one);
                }}
              >
                {selection && (
                  <span role="cell" className={styles.pick}>
                    <input
                      type="checkbox"
                      aria-label={`Select ${selection.label(key)}`}
                      checked={selection.chosen.has(key)}
                      onChange={(event) => selection.toggle(key, (event.nativeEvent as MouseEvent).shiftKey === true)}
                    />
                  </span>
                )}
                {narrow ? (
                  <div role="cell" className={styles.cell}>
                    {card(one)}
                  </div>
                ) : (
                  columns.map((column) => (
                    <span key={column.key} role="cell" className={`${styles.cell} ${column.align ? styles.end : ""}`}>
                      {column.cell(one)}
                    </span>
                  ))
                )}
              </div>
            );
          })}
        </div>
      </div>
      {rows.length === 0 && empty}
      {foot}
    </div>
  );
}
