/** What all panels of a run share: its log, the moment that is shown, and the one selection. */
import { createContext, useContext } from "react";
import type { ListedRun } from "../../api/types.ts";
import type { PlanGraph } from "../../lib/plan.ts";
import type { RunLog } from "./log.ts";
import type { Moment } from "./moment.ts";
import type { StepSpan } from "./spans.ts";

export interface Selection {
  /** the event that is selected, and the moment that is shown; none: now */
  seq?: number | undefined;
  /** a first mark: what changed from there to `seq`? */
  from?: number | undefined;
  step?: string | undefined;
  run?: number | undefined;
  item?: string | undefined;
  tab?: Tab | undefined;
  /** the events of the list, from one seq to another: `120-300` */
  range?: string | undefined;
  /** a text in the type, step or task of the events that are listed */
  find?: string | undefined;
  show?: "compact" | undefined;
  /** names of events in what is shown and downloaded */
  dialect?: Dialect | undefined;
  /** a line of the source */
  line?: number | undefined;
  /** the value whose origin is shown: `result.total` */
  value?: string | undefined;
}

/** The first and the last seq of a range in the address; null when it is none. */
export function rangeOf(text: string | undefined): [number, number] | null {
  const [, first, last] = /^(\d{1,9})-(\d{1,9})$/.exec(text ?? "") ?? [];
  if (!first || !last || Number(first) < 1 || Number(first) > Number(last)) return null;
  return [Number(first), Number(last)];
}

export const DIALECTS = ["canonical", "lifecycle", "run", "wire", "legacy"] as const;
export type Dialect = (typeof DIALECTS)[number];

export const TAB_NAMES = ["events", "items", "logs", "data", "source", "children", "lineage", "history"] as const;
export type Tab = (typeof TAB_NAMES)[number];

export interface RunView {
  id: string;
  run: ListedRun;
  log: RunLog;
  /** changes whenever the log grows */
  version: number;
  /** the run has ended, and its log is here up to its last event */
  isWhole: boolean;
  plan: PlanGraph | null;
  steps: readonly StepSpan[];
  pauses: readonly { from: number; to: number | null }[];
  selection: Selection;
  /** the event that made the run fail */
  causeSeq: number | undefined;
  /** the selection; when there is none, the place where the run failed */
  focus: Selection;
  select: (change: Selection) => void;
}

/** The moment that is shown. It changes with every frame while somebody drags the slider. */
export interface MomentView {
  /** none: the newest */
  seq: number | undefined;
  moment: Moment;
  /** go there, without the address before it rests */
  scrub: (seq: number) => void;
}

export const MomentContext = createContext<MomentView | null>(null);

export function useMoment(): MomentView {
  const view = useContext(MomentContext);
  if (!view) throw new Error("this belongs on a run's page");
  return view;
}

export const RunContext = createContext<RunView | null>(null);

export function useRunView(): RunView {
  const view = useContext(RunContext);
  if (!view) throw new Error("this belongs on a run's page");
  return view;
}
