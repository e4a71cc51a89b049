import { useVirtualizer } from "@tanstack/react-virtual";
import { type PointerEvent, type ReactNode, useMemo, useRef, useState } from "react";
import { serverNow } from "../../api/client.ts";
import { useKeys } from "../../lib/keys.ts";
import { countText } from "../../lib/numbers.ts";
import { isOver } from "../../lib/states.ts";
import { exactText, spanText, ticksOf, tickText } from "../../lib/time.ts";
import { IconButton } from "../../parts/Button.tsx";
import { Panel } from "../../parts/Panel.tsx";
import { StateGlyph } from "../../parts/State.tsx";
import { useNow } from "../../parts/Time.tsx";
import { rangeOf, useMoment, useRunView } from "./context.ts";
import styles from "./Gantt.module.css";
import { criticalPath, type Segment, type Span, type StepSpan } from "./spans.ts";

const KINDS = [
  ["wait", "queued"],
  ["run", "running"],
  ["backoff", "back-off"],
  ["pause", "pause"],
  ["child", "child run"],
  ["person", "waiting"],
] as const;
const ROW = 26;
const MOST_ZOOM = 4096;
/** Room for names, left of the track, and behind it; the style sheet has both. */
const NAMES = "var(--names)";
const TRACK = "(100% - var(--names) - var(--s3))";
/** A drag of fewer pixels is a click. */
const LEAST_DRAG = 5;
/** Items of an opened loop that get a row each: failed ones first. */
const MOST_ITEMS = 500;

interface Row {
  span: Span;
  step: StepSpan;
  critical: boolean;
}

/** What took how long. The zoom is a factor around what is selected; a drag over the bars selects the events of that time. */
export function Gantt(): ReactNode {
  const { run, log, version, steps, pauses, selection, focus, select } = useRunView();
  const [opened, setOpened] = useState<ReadonlySet<StepSpan>>(new Set());
  const [zoom, setZoom] = useState(1);
  const scroller = useRef<HTMLDivElement>(null);
  const critical = useMemo(() => criticalPath(steps), [steps]);
  const rows = useMemo<Row[]>(
    () =>
      steps.flatMap((step) => [
        { span: step, step, critical: critical.has(step) },
        ...(opened.has(step) ? failedFirst(step).map((span) => ({ span, step, critical: false })) : []),
      ]),
    [steps, opened, critical],
  );
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW,
    overscan: 10,
  });
  const over = isOver(run);
  const ticking = useNow(over ? 60_000 : 1000);
  const first = log.at[0] ?? 0;
  const last = over ? (log.at.at(-1) ?? first) : Math.max(serverNow(), ticking, log.at.at(-1) ?? first);
  const whole = Math.max(last - first, 1);
  const moment = focus.seq === undefined ? null : (log.at[focus.seq - 1] ?? null);
  // Zoomed in, what is selected stays in the middle.
  const width = whole / zoom;
  const middle = moment ?? steps.find((one) => one.step === focus.step)?.from ?? first + width / 2;
  const begin = Math.min(Math.max(middle - width / 2, first), Math.max(last - width, first));
  const x = (at: number): number => (100 * (at - begin)) / width;
  const part = (from: number, to: number | null): { left: number; width: number } | null => {
    const left = Math.max(x(from), 0);
    const right = Math.min(x(to ?? last), 100);
    return right < 0 || left > 100 || right < left ? null : { left, width: right - left };
  };
  const zoomBy = (factor: number): void => setZoom((before) => Math.min(Math.max(before * factor, 1), MOST_ZOOM));
  useKeys("Chart", [
    { keys: "+", text: "zoom in", run: () => zoomBy(2) },
    { keys: "-", text: "zoom out", run: () => zoomBy(0.5) },
  ]);
  const [drag, setDrag] = useState<{ from: number; to: number } | null>(null);
  const canvas = useRef<HTMLDivElement>(null);
  const ruler = useRef<HTMLDivElement>(null);
  /** the time under the pointer, within the chart */
  const timeAt = (event: PointerEvent): number => {
    const box = ruler.current?.getBoundingClientRect();
    const share = box?.width ? (event.clientX - box.left) / box.width : 0;
    return begin + Math.min(Math.max(share, 0), 1) * width;
  };
  const brush = {
    onPointerDown: (event: PointerEvent) => {
      // Fingers scroll.
      const isTrack = event.target instanceof Element && event.target.closest(`.${styles.track}`) !== null;
      if (event.button !== 0 || event.pointerType === "touch" || (!isTrack && event.target !== canvas.current)) return;
      event.currentTarget.setPointerCapture(event.pointerId);
      setDrag({ from: timeAt(event), to: timeAt(event) });
    },
    onPointerMove: (event: PointerEvent) => {
      if (drag) setDrag({ from: drag.from, to: timeAt(event) });
    },
    onPointerUp: () => {
      if (!drag) return;
      setDrag(null);
      const pixels = (Math.abs(drag.to - drag.from) / width) * (ruler.current?.clientWidth ?? 0);
      if (pixels < LEAST_DRAG) return;
      const range = log.within(Math.min(drag.from, drag.to), Math.max(drag.from, drag.to));
      if (range) select({ range: range.join("-"), tab: "events" });
    },
    onPointerCancel: () => setDrag(null),
  };
  const range = rangeOf(selection.range);
  const marked = drag
    ? part(Math.min(drag.from, drag.to), Math.max(drag.from, drag.to))
    : range && part(log.at[range[0] - 1] ?? first, log.at[range[1] - 1] ?? last);
  const ticks = ticksOf(begin - first, width);
  const used = useMemo(() => kindsOf(steps, pauses.length > 0), [steps, pauses]);
  const toggle = (step: StepSpan): void => {
    const next = new Set(opened);
    if (!next.delete(step)) next.add(step);
    setOpened(next);
  };
  return (
    <div className={styles.gantt} data-version={version}>
      <Panel
        title="Time"
        note={<Legend used={used} />}
        actions={
          <>
            <IconButton label="Zoom out" icon="−" disabled={zoom <= 1} onClick={() => zoomBy(0.5)} />
            <IconButton label="Zoom in" icon="+" disabled={zoom >= MOST_ZOOM} onClick={() => zoomBy(2)} />
          </>
        }
      >
        <div
          className={styles.scroller}
          ref={scroller}
          role="group"
          aria-label="Steps over time"
          tabIndex={0}
          onWheel={(event) => {
            if (!event.ctrlKey && !event.metaKey) return;
            zoomBy(event.deltaY < 0 ? 1.5 : 1 / 1.5);
          }}
        >
          <div className={styles.rows} style={{ height: virtual.getTotalSize() }} ref={canvas} {...brush}>
            {ticks.map((at) => (
              <span key={at} className={styles.line} style={{ left: beside(x(first + at)) }} />
            ))}
            {marked && (
              <span
                className={styles.range}
                data-testid="range"
                style={{ left: beside(marked.left), width: `calc(${TRACK} * ${marked.width / 100})` }}
              />
            )}
            {pauses.map((pause) => {
              const at = part(pause.from, pause.to);
              const style = at && { left: beside(at.left), width: `calc(${TRACK} * ${at.width / 100})` };
              return style && <span key={pause.from} className={styles.pauseBand} style={style} title="paused" />;
            })}
            <MomentLine x={x} />
            {virtual.getVirtualItems().map((place) => {
              const row = rows[place.index];
              if (!row) return null;
              const { span, step } = row;
              const name = span.item ? `item ${span.item}` : span.run > 1 ? `${span.step} #${span.run}` : span.step;
              const took = spanText((span.to ?? last) - span.from);
              const chosen =
                focus.step === span.step &&
                (focus.item ?? "") === span.item &&
                (focus.run === undefined || focus.run === span.run);
              return (
                <div
                  key={`${span.first}`}
                  className={styles.row}
                  data-selected={chosen}
                  data-item={span.item !== ""}
                  style={{ transform: `translateY(${place.start}px)`, height: ROW }}
                >
                  <span className={styles.name}>
                    {step.items.size > 0 && span.item === "" && (
                      <button
                        type="button"
                        className={styles.fold}
                        aria-expanded={opened.has(step)}
                        aria-label={`Items of ${span.step}`}
                        onClick={() => toggle(step)}
                      >
                        {opened.has(step) ? "▾" : "▸"}
                      </button>
                    )}
                    <button
                      type="button"
                      className={`${styles.label} cut`}
                      onClick={() =>
                        select({
                          step: span.step,
                          run: span.run > 1 ? span.run : undefined,
                          item: span.item || undefined,
                        })
                      }
                    >
                      <StateGlyph state={span.state} size={12} />
                      <span className="cut">{name}</span>
                      <span className="hidden-visually">
                        , {span.state}, {took}
                        {row.critical ? ", on the critical path" : ""}
                      </span>
                    </button>
                    <span className="quiet small">{took}</span>
                  </span>
                  <span className={styles.track}>
                    {row.critical && <Critical at={part(span.from, span.to)} />}
                    {segmentsOf(span).map((segment, index) => {
                      const at = part(segment.from, segment.to);
                      return (
                        at && (
                          <span
                            // biome-ignore lint/suspicious/noArrayIndexKey: segments are in order
                            key={index}
                            className={`${styles.segment} ${styles[segment.kind]}`}
                            data-failed={segment.failed}
                            style={{ left: `${at.left}%`, width: `max(${at.width}%, 2px)` }}
                            title={titleOf(segment, last)}
                          />
                        )
                      );
                    })}
                  </span>
                </div>
              );
            })}
          </div>
        </div>
        <div className={styles.axis} aria-hidden="true">
          <div ref={ruler}>
            {ticks.map((at) => (
              <span key={at} style={{ left: `${x(first + at)}%` }}>
                {tickText(at, ticks)}
              </span>
            ))}
          </div>
        </div>
      </Panel>
    </div>
  );
}

/** Where the moment that is shown is; it moves without the rest. */
function MomentLine({ x }: { x: (at: number) => number }): ReactNode {
  const { log } = useRunView();
  const { seq } = useMoment();
  const at = seq === undefined ? undefined : log.at[seq - 1];
  if (at === undefined || x(at) < 0 || x(at) > 100) return null;
  return <span className={styles.moment} style={{ left: beside(x(at)) }} />;
}

/** The bar of a step on the critical path is underlined as far as it goes. */
function Critical({ at }: { at: { left: number; width: number } | null }): ReactNode {
  if (!at) return null;
  return <span className={styles.critical} style={{ left: `${at.left}%`, width: `max(${at.width}%, 2px)` }} />;
}

/** The kinds of time that a run has: the legend explains no others. */
function kindsOf(steps: readonly StepSpan[], isPaused: boolean): ReadonlySet<string> {
  const used = new Set<string>(isPaused ? ["pause"] : []);
  for (const step of steps) {
    for (const segment of step.segments) used.add(segment.kind);
    for (const item of step.items.values()) for (const segment of item.segments) used.add(segment.kind);
    if (used.size === KINDS.length) break;
  }
  return used;
}

function Legend({ used }: { used: ReadonlySet<string> }): ReactNode {
  return (
    <span className={styles.legend}>
      {KINDS.filter(([kind]) => used.has(kind)).map(([kind, text]) => (
        <span key={kind}>
          <span className={`${styles.swatch} ${styles[kind]}`} /> {text}
        </span>
      ))}
      {used.size > 0 && (
        <span>
          <span className={`${styles.swatch} ${styles.criticalSwatch}`} /> critical path
        </span>
      )}
    </span>
  );
}

/** A place of the track, counted from where names begin. */
function beside(percent: number): string {
  return `calc(${NAMES} + ${TRACK} * ${percent / 100})`;
}

/** Segments of a span; a loop's is one, from its first item to its last. */
function segmentsOf(span: Span): Segment[] {
  return span.segments.length > 200 ? [{ kind: "run", from: span.from, to: span.to }] : span.segments;
}

function failedFirst(step: StepSpan): Span[] {
  const items = [...step.items.values()];
  const failed = items.filter((one) => one.state === "failed");
  return [...failed, ...items.filter((one) => one.state !== "failed")].slice(0, MOST_ITEMS);
}

function titleOf(segment: Segment, last: number): string {
  const text = KINDS.find(([kind]) => kind === segment.kind)?.[1] ?? segment.kind;
  const what = [
    segment.task ?? "",
    segment.attempt && segment.attempt > 1 ? `attempt ${countText(segment.attempt)}` : "",
  ];
  const took = spanText((segment.to ?? last) - segment.from);
  return [...what.filter(Boolean), text, took, exactText(segment.from)].join(" · ");
}
