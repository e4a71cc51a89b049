import { Flag, Pause, Play, SkipForward, StepBack, StepForward } from "lucide-react";
import { type CSSProperties, memo, type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { useKeys } from "../../lib/keys.ts";
import { countText } from "../../lib/numbers.ts";
import { exactText } from "../../lib/time.ts";
import { Button, IconButton } from "../../parts/Button.tsx";
import { useMoment, useRunView } from "./context.ts";
import styles from "./Scrubber.module.css";

const BINS = 120;
/** Events that playing goes on by, a second. */
const SPEEDS = [10, 100, 1000] as const;
const MARKS: Record<string, string> = {
  "task.failed": "✗",
  "step.failed": "✗",
  "signal.received": "⚑",
  "task.attempt.started": "↻",
};
const MOST_MARKS = 60;

/** Which moment is shown: drag, press the arrows, or play. The newest is live. */
export function Scrubber({ live }: { live: ReactNode }): ReactNode {
  const { log, version, selection, select } = useRunView();
  const { seq, scrub } = useMoment();
  const length = log.length;
  const at = seq === undefined ? length : Math.min(seq, length);
  const [playing, setPlaying] = useState<number | null>(null);

  const go = (to: number): void => {
    const next = Math.max(1, Math.min(to, length));
    select(next >= length ? { seq: undefined } : { seq: next });
  };
  const place = useRef({ at, scrub, length });
  place.current = { at, scrub, length };
  useEffect(() => {
    if (playing === null) return;
    let before = performance.now();
    let rest = 0;
    let next = 0;
    const tick = (now: number): void => {
      rest += ((now - before) / 1000) * (SPEEDS[playing] ?? 10);
      before = now;
      const whole = Math.floor(rest);
      if (whole) {
        rest -= whole;
        const { at: from, scrub: to, length: end } = place.current;
        to(Math.min(from + whole, end));
        if (from + whole >= end) {
          setPlaying(null);
          return;
        }
      }
      next = requestAnimationFrame(tick);
    };
    next = requestAnimationFrame(tick);
    return () => cancelAnimationFrame(next);
  }, [playing]);

  /** A key that is held goes through many events: the address follows when it rests. */
  const move = (to: number): void => scrub(Math.max(1, Math.min(to, length)));
  const boundary = (by: 1 | -1): void => {
    let to = at + by;
    while (to > 1 && to < length && !/^step\.(scheduled|done|failed)$/.test(log.kindOf(to).type)) to += by;
    move(to);
  };
  const play = (): void => {
    if (playing === null && at >= length) go(1);
    setPlaying(playing === null ? 0 : null);
  };
  useKeys("Time", [
    {
      keys: "ArrowLeft",
      text: "previous event (⇧: previous step)",
      run: (event) => (event.shiftKey ? boundary(-1) : move(at - 1)),
    },
    {
      keys: "ArrowRight",
      text: "next event (⇧: next step)",
      run: (event) => (event.shiftKey ? boundary(1) : move(at + 1)),
    },
    { keys: " ", text: "play or stop", run: play },
    { keys: "e", text: "go to the end (live)", run: () => select({ seq: undefined }) },
    {
      keys: "m",
      text: "mark this moment to compare with",
      run: () => select({ from: at, tab: "data" }),
    },
  ]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: the log grows in place; its version says when
  const { path, marks } = useMemo(() => shapeOf(log), [log, version]);
  const moment = log.at[at - 1];
  const kind = at ? log.kindOf(at) : null;
  return (
    <section className={styles.scrubber} aria-label="Time travel">
      <div className={styles.buttons}>
        <IconButton
          label="Previous event"
          icon={<StepBack size={14} />}
          disabled={at <= 1}
          onClick={() => go(at - 1)}
        />
        <IconButton
          label={playing === null ? "Play" : "Stop"}
          icon={playing === null ? <Play size={14} /> : <Pause size={14} />}
          disabled={length < 2}
          onClick={play}
        />
        <IconButton
          label="Next event"
          icon={<StepForward size={14} />}
          disabled={at >= length}
          onClick={() => go(at + 1)}
        />
        {playing !== null && (
          <Button kind="quiet" onClick={() => setPlaying((playing + 1) % SPEEDS.length)}>
            {[1, 10, 100][playing]}×
          </Button>
        )}
      </div>
      <div className={styles.track}>
        <svg className={styles.density} viewBox={`0 0 ${BINS} 20`} preserveAspectRatio="none" aria-hidden="true">
          <path d={path} />
        </svg>
        <Marks marks={marks} length={length} />
        {selection.from !== undefined && length > 1 && (
          <span
            className={styles.from}
            style={{ left: leftOf(Math.min(selection.from, length), length) }}
            title={`mark at event ${selection.from}`}
          />
        )}
        <input
          type="range"
          min={1}
          max={Math.max(length, 1)}
          value={at || 1}
          style={{ "--done": leftOf(at, length) } as CSSProperties}
          aria-label="Moment of the run"
          aria-valuetext={`event ${at} of ${length}${kind ? `, ${kind.type} ${kind.step}` : ""}`}
          onChange={(event) => scrub(Number(event.target.value))}
          onKeyDown={(event) => {
            if (event.key === "ArrowLeft" || event.key === "ArrowRight") event.preventDefault();
          }}
        />
      </div>
      <div className={styles.where}>
        <span>
          event {countText(at)} of {countText(length)}
        </span>
        <span className="quiet">{moment ? exactText(moment).slice(11) : ""}</span>
        <IconButton
          label={selection.from === undefined ? "Mark this moment" : "Remove the mark"}
          icon={<Flag size={14} />}
          onClick={() => select(selection.from === undefined ? { from: at, tab: "data" } : { from: undefined })}
        />
        {seq !== undefined && (
          <IconButton
            label="Go to the end"
            icon={<SkipForward size={14} />}
            onClick={() => select({ seq: undefined })}
          />
        )}
        {live}
      </div>
    </section>
  );
}

interface Mark {
  seq: number;
  text: string;
  type: string;
}

const Marks = memo(function Marks({ marks, length }: { marks: Mark[]; length: number }): ReactNode {
  return marks.map((mark) => (
    <span
      key={mark.seq}
      className={styles.mark}
      data-kind={mark.text}
      style={{ left: leftOf(mark.seq, length) }}
      title={`${mark.type}, event ${mark.seq}`}
      aria-hidden="true"
    >
      {mark.text}
    </span>
  ));
});

/** Where an event is on the track: the middle of the thumb, which is 14 px wide, stays inside. */
function leftOf(seq: number, length: number): string {
  const share = (Math.max(seq, 1) - 1) / Math.max(length - 1, 1);
  return `calc(7px + ${(100 * share).toFixed(3)}% - ${(14 * share).toFixed(2)}px)`;
}

/** How dense events are, as an area, and what stands out. */
function shapeOf(log: ReturnType<typeof useRunView>["log"]): {
  path: string;
  marks: Mark[];
} {
  const bins = new Array<number>(BINS).fill(0);
  const first = log.at[0] ?? 0;
  const span = Math.max((log.at.at(-1) ?? 0) - first, 1);
  const marks: Mark[] = [];
  const step = Math.max(log.length / BINS, 1);
  for (let seq = 1; seq <= log.length; seq++) {
    // The area stands over events, not over time: what it shows is how much time passed among them.
    const bin = Math.min(Math.floor((seq - 1) / step), BINS - 1);
    // Clocks of several machines differ: an event may be older than the one before it.
    bins[bin] = (bins[bin] ?? 0) + Math.max((log.at[seq - 1] ?? 0) - (log.at[seq - 2] ?? first), 0) / span;
    const { type } = log.kindOf(seq);
    const text = MARKS[type];
    if (text && marks.length < MOST_MARKS) marks.push({ seq, text, type });
  }
  const most = Math.max(...bins, 0.001);
  const points = bins.map((value, index) => `L${index} ${(20 - 18 * Math.sqrt(value / most)).toFixed(1)}`);
  return { path: `M0 20 ${points.join(" ")} L${BINS} 20 Z`, marks };
}
