import { useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { type ReactNode, useCallback, useEffect, useMemo, useRef } from "react";
import { graphQuery, runQuery, whyQuery } from "../../api/queries.ts";
import type { StreamState } from "../../api/stream.ts";
import type { ListedRun } from "../../api/types.ts";
import { useCrumbs } from "../../app/crumbs.ts";
import { useNarrow } from "../../lib/narrow.ts";
import { planOf } from "../../lib/plan.ts";
import { isOver } from "../../lib/states.ts";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { Boundary, Trouble } from "../../parts/Trouble.tsx";
import { Answer } from "./Answer.tsx";
import { Bottom } from "./Bottom.tsx";
import { RunContext, type RunView, type Selection } from "./context.ts";
import { Details } from "./Details.tsx";
import { Gantt } from "./Gantt.tsx";
import { Head } from "./Head.tsx";
import { MomentProvider } from "./MomentProvider.tsx";
import styles from "./Run.module.css";
import { RunGraph } from "./RunGraph.tsx";
import { Scrubber } from "./Scrubber.tsx";
import { Spans } from "./spans.ts";
import { useRunLog } from "./useRunLog.ts";

const route = getRouteApi("/runs/$id");
/** While a run moves, what was derived from its events is asked for again at most this often. */
const AGAIN_MS = 2000;

/** One run: what it came to, its graph and times, and everything about what is selected, at any moment. */
export function Run(): ReactNode {
  const { id } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const listed = useQuery(runQuery(id));
  const why = useQuery(whyQuery(id));
  const drawn = useQuery(graphQuery(id));
  const run = listed.data?.execution_id === id ? listed.data : undefined;
  useCrumbs([
    { text: "Runs", to: "/runs" },
    ...(run ? [{ text: run.name, to: `/runs?path=${run.path}` }] : []),
    { text: id },
  ]);
  const { log, version, state, reason } = useRunLog(id, useNews(id, run !== undefined && isOver(run)));
  const plan = useMemo(
    () => (drawn.isPlaceholderData ? null : planOf(drawn.data)),
    [drawn.data, drawn.isPlaceholderData],
  );

  const spans = useMemo(() => {
    const kinds = new Map(
      plan?.steps.flatMap((step) => step.tasks.map((task) => [`${step.name}\n${task.name}`, task.kind])),
    );
    return new Spans(log, (step, task) => kinds.get(`${step}\n${task}`) ?? "");
  }, [log, plan]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the log grows in place; its version says when
  const steps = useMemo(() => {
    spans.advance();
    return [...spans.steps];
  }, [spans, version]);

  const select = useCallback(
    (change: Selection) => void navigate({ search: (before) => ({ ...before, ...change }), replace: true }),
    [navigate],
  );
  // On a phone the tabs are below the fold: whoever asks to see something there is taken there.
  const narrow = useNarrow();
  const bottom = useRef<HTMLDivElement>(null);
  const show = (change: Selection): void => {
    select(change);
    if (narrow) bottom.current?.scrollIntoView();
  };
  const cause = why.data?.execution_id === id ? why.data.cause : null;
  const waits = why.data?.execution_id === id ? why.data.waits[0] : undefined;
  // It completed, though some items of a loop failed: the first of them is what people want to see.
  const problem = why.data?.execution_id === id ? why.data.problems[0] : undefined;
  const focus = useMemo<Selection>(() => {
    if (search.step || search.seq !== undefined) return search;
    if (cause?.execution_id === id) {
      return { ...search, step: cause.step || undefined, item: cause.iteration || undefined };
    }
    const step = waits?.step || problem?.step;
    return step ? { ...search, step } : search;
  }, [search, cause, waits, problem, id]);
  const causeSeq = (cause?.execution_id === id && cause.seq) || undefined;
  const isWhole = state === "ended";
  const queries = useQueryClient();
  const whyIsEarly = why.data?.execution_id === id && !isOver(why.data);
  const isStale = run !== undefined && (isOver(run) ? whyIsEarly : isWhole);
  useEffect(() => {
    // The run has ended since it was asked for, or since its cause was: both are asked for again, at once and until the
    // answers agree. Another server may be a moment behind.
    if (!isStale) return;
    const ask = (): void => void queries.invalidateQueries({ queryKey: ["run", id] });
    ask();
    const timer = setInterval(ask, AGAIN_MS);
    return () => clearInterval(timer);
  }, [isStale, queries, id]);
  const view = useMemo<RunView | null>(
    () =>
      run
        ? {
            id,
            run,
            log,
            version,
            isWhole,
            plan,
            steps,
            pauses: spans.pauses,
            selection: search,
            causeSeq,
            focus,
            select,
          }
        : null,
    [id, run, log, version, isWhole, plan, steps, spans, search, causeSeq, focus, select],
  );
  // There is nothing to fork after an event that the run does not have.
  const isBeyond = isWhole && search.seq !== undefined && search.seq > log.length;
  if (listed.isError && !run) {
    return <Trouble what={`Run ${id}`} error={listed.error} retry={() => void listed.refetch()} />;
  }
  return (
    <div className={styles.page}>
      {run ? (
        <Head run={run} selection={isBeyond ? { ...search, seq: undefined } : search} steps={steps} />
      ) : (
        <Skeleton lines={2} height={1.75} />
      )}
      {run && why.data?.execution_id === id && <Answer run={run} why={why.data} select={show} />}
      {view && (
        <RunContext value={view}>
          <MomentProvider log={log} version={version} seq={search.seq} select={select}>
            <div className={styles.top}>
              <Boundary resetKey={id}>
                <RunGraph />
              </Boundary>
              <Boundary resetKey={id}>
                <Gantt />
              </Boundary>
            </div>
            <Scrubber live={<Live state={state} reason={reason} over={isOver(run as ListedRun)} />} />
            <div className={styles.bottom} ref={bottom}>
              <Boundary resetKey={id}>
                <Bottom loading={state === "connecting" && log.length === 0} />
              </Boundary>
              <Boundary resetKey={id}>
                <Details />
              </Boundary>
            </div>
          </MomentProvider>
        </RunContext>
      )}
    </div>
  );
}

const LIVE: Record<StreamState, string> = {
  connecting: "connecting …",
  live: "live",
  ended: "",
  away: "reconnecting …",
  denied: "not allowed",
};

/** `over`: the run has ended, and its events are still on their way. */
function Live({ state, reason, over }: { state: StreamState; reason: string; over: boolean }): ReactNode {
  return (
    <span className={`${styles.live} quiet small`} data-state={state} title={reason}>
      {over && state === "live" ? "loading …" : LIVE[state]}
    </span>
  );
}

/** Ask again for what events change, but not for each of them, and not for a run that had ended before they came. */
function useNews(id: string, over: boolean): () => void {
  const queries = useQueryClient();
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another run begins anew
  useEffect(
    () => () => {
      clearTimeout(timer.current);
      timer.current = undefined;
    },
    [id],
  );
  const ended = useRef(over);
  ended.current = over;
  return useCallback(() => {
    if (timer.current || ended.current) return;
    timer.current = setTimeout(() => {
      timer.current = undefined;
      void queries.invalidateQueries({ queryKey: ["run", id] });
    }, AGAIN_MS);
  }, [queries, id]);
}
