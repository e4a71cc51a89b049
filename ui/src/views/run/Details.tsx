import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { memo, type ReactNode, useMemo } from "react";
import { eventQuery, eventsQuery, type RunEvent, summaryQuery } from "../../api/queries.ts";
import { shortText } from "../../lib/diff.ts";
import { countText } from "../../lib/numbers.ts";
import { conditionText, type PlanStep, type PlanTask } from "../../lib/plan.ts";
import { useRested } from "../../lib/rested.ts";
import { isOver, type State as StateName } from "../../lib/states.ts";
import { spanText } from "../../lib/time.ts";
import { Empty } from "../../parts/Empty.tsx";
import { Json } from "../../parts/Json.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { State } from "../../parts/State.tsx";
import { useMoment, useRunView } from "./context.ts";
import type { Line } from "./log.ts";
import styles from "./Run.module.css";

/** Events of a step run that say what went in, what came out and what was decided; so many are shown. */
const MOST = 24;
/** Events that are looked at for the item of a loop to show. */
const MOST_LOOKED = 5000;
const TOLD = new Set([
  "task.started",
  "task.attempt.started",
  "task.attempt.failed",
  "task.attempt.done",
  "task.done",
  "task.failed",
  "policy.task.evaluated",
  "policy.admit.evaluated",
  "next.evaluated",
  "step.scheduled",
  "step.failed",
  "loop.iteration.failed",
]);

/** All about what is selected: the step with inputs, outcome and decisions, and the event itself. */
export function Details(): ReactNode {
  const { focus } = useRunView();
  const { seq, moment } = useMoment();
  // What is dragged past is not asked for.
  return <DetailsAt seq={useRested(seq)} state={focus.step ? moment.steps.get(focus.step)?.state : undefined} />;
}

const DetailsAt = memo(function DetailsAt({ seq, state }: { seq: number | undefined; state: StateName | undefined }) {
  const { run, plan, steps, focus: selection, log, isWhole } = useRunView();
  const step = plan?.steps.find((one) => one.name === selection.step);
  const chosen = seq !== undefined && seq <= log.length;
  return (
    <aside className={styles.details} aria-label="Details of the selection">
      <div className={styles.scroll} tabIndex={0} role="group" aria-label="Details">
        {step &&
          (isOver(run) && !isWhole && seq === undefined ? (
            <>
              <h3 className={styles.block}>{step.name}</h3>
              <Skeleton lines={6} height={1.25} />
            </>
          ) : (
            <StepDetails step={step} seq={seq} state={state} />
          ))}
        {chosen && <EventDetails seq={seq} />}
        {isWhole && seq !== undefined && !chosen ? (
          <Empty title={`This run has no event ${countText(seq)}`}>Its last event is {countText(log.length)}.</Empty>
        ) : (
          !step &&
          !chosen &&
          (run.state === "COMPLETED" ? (
            <Result />
          ) : (
            <Empty title={steps.length ? "Select a step or an event" : "Nothing has run yet"}>
              Its inputs, outcome and decisions are shown here.
            </Empty>
          ))
        )}
      </div>
    </aside>
  );
});

/** What a run that completed came to: the first question about it. */
function Result(): ReactNode {
  const { id, select } = useRunView();
  const summary = useQuery(summaryQuery(id));
  if (!summary.data) return <Skeleton lines={4} height={1.25} />;
  const { result } = summary.data;
  return (
    <section className={styles.block}>
      <h3>Result</h3>
      {result === null || result === undefined ? (
        <p className="quiet">This run has no result.</p>
      ) : (
        <Json
          value={result}
          label="Result"
          origin={{ path: "result", ask: (value) => select({ tab: "lineage", value }) }}
        />
      )}
      <p className="quiet small">Select a step or an event for its inputs, outcome and decisions.</p>
    </section>
  );
}

function EventDetails({ seq }: { seq: number }): ReactNode {
  const { id, selection } = useRunView();
  const event = useQuery({ ...eventQuery(id, seq, selection.dialect), placeholderData: keepPreviousData });
  if (!event.data) return <Skeleton lines={6} height={1.25} />;
  const shown = event.data.seq;
  return (
    <section className={styles.block} aria-busy={shown !== seq}>
      <h3>
        Event {countText(shown)}: {event.data.event_type}
      </h3>
      <Json key={shown} value={event.data} label={`Event ${shown}`} />
    </section>
  );
}

/** The lines of the log that are about one run of a step, or one of its items, up to the moment that is shown. */
function useLines(step: string, seq: number | undefined, item: string | undefined): Line[] {
  const { log, version, focus } = useRunView();
  const { run } = focus;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the log grows in place; its version says when
  return useMemo(() => {
    const last = seq === undefined ? log.length : Math.max(seq, 0);
    const found: Line[] = [];
    for (let at = Math.min(last, log.length); at >= 1 && found.length < MOST; at--) {
      const kind = log.kindOf(at);
      if (kind.step !== step || !TOLD.has(kind.type)) continue;
      if (run && log.run[at - 1] !== run) continue;
      if (item && log.itemOf(at) !== item && kind.type !== "step.scheduled") continue;
      if (found[0] && log.run[at - 1] !== found[0].run) continue;
      found.push(log.line(at));
    }
    return found.reverse();
  }, [log, version, step, seq, run, item]);
}

/** The item of a loop that is shown: the selected one, else the first that failed, else the latest. */
function useItem(step: PlanStep, seq: number | undefined): string | undefined {
  const { log, version, focus } = useRunView();
  const { run, item } = focus;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the log grows in place; its version says when
  return useMemo(() => {
    if (item || !step.loop) return item;
    let latest: string | undefined;
    let failed: string | undefined;
    for (
      let at = Math.min(seq ?? log.length, log.length), looked = 0;
      at >= 1 && looked < MOST_LOOKED;
      at--, looked++
    ) {
      const kind = log.kindOf(at);
      if (kind.step !== step.name || (run && log.run[at - 1] !== run)) continue;
      // Later ones may have been ended because of the first.
      if (kind.type === "loop.iteration.failed") failed = log.itemOf(at) || failed;
      latest ??= log.itemOf(at) || undefined;
    }
    return failed ?? latest;
  }, [log, version, step, seq, run, item]);
}

interface StepProps {
  step: PlanStep;
  seq: number | undefined;
  /** none: it has not run */
  state: StateName | undefined;
}

function StepDetails({ step, seq, state }: StepProps): ReactNode {
  const { id, focus: selection, steps } = useRunView();
  const item = useItem(step, seq);
  const lines = useLines(step.name, seq, item);
  const seqs = lines.map((line) => line.seq);
  const events = useQuery(eventsQuery(id, seqs));
  const loaded = (events.data ?? []).filter((event) => event.step === step.name && seqs.includes(event.seq));
  const span = steps.findLast((one) => one.step === step.name && (!selection.run || one.run === selection.run));
  const part = selection.item ? span?.items.get(selection.item) : undefined;
  const isPartOver = part !== undefined && part.last > 0 && (seq === undefined || part.last <= seq);
  const shown = part && isPartOver ? part.state : state;
  const timed = part ?? span;
  const tasks = step.tasks.filter((task) => lines.some((line) => line.task === task.name));
  const routed = loaded.findLast((event) => event.event_type === "next.evaluated");
  // Why an item failed; a task that failed says it below, with its attempts.
  const ended = loaded.findLast((event) => event.event_type === "loop.iteration.failed");
  const reason = (ended?.payload?.error as Record<string, unknown> | undefined)?.message;
  const admitted = loaded.findLast((event) => event.event_type === "policy.admit.evaluated");
  return (
    <>
      <section className={styles.block}>
        <h3 className={styles.stepTitle}>
          {step.name}
          {selection.item && <span className="quiet"> item {selection.item}</span>}
          {shown && <State state={shown} />}
        </h3>
        {step.desc && <p>{step.desc}</p>}
        <p className="quiet small">
          {[
            step.loop ? `each ${step.loop.iterator} of ${conditionText(step.loop.in)}, ${step.loop.mode}` : "",
            step.join !== "any" ? `join ${step.join}` : "",
            step.pool !== "default" ? `pool ${step.pool}` : "",
            timed?.to ? `took ${spanText(timed.to - timed.from)}` : "",
            `line ${step.line}`,
          ]
            .filter(Boolean)
            .join(" · ")}
        </p>
        {item && !selection.item && <p className="quiet small">Below: item {item}. Select others under Items.</p>}
        {typeof reason === "string" && (
          <p className={styles.wrong}>
            {!selection.item && <>item {item}: </>}
            {shortText(reason, 2000)}
          </p>
        )}
      </section>
      {admitted && step.admit && (
        <Rules
          title="Admission"
          rules={step.admit.map((rule) => ({ when: rule.when, does: rule.allow ? "allow" : "deny", line: rule.line }))}
          matched={indexOf(admitted)}
        />
      )}
      {(tasks.length ? tasks : state ? [] : step.tasks).map((task) => (
        <TaskDetails key={task.name} task={task} events={loaded.filter((event) => event.task === task.name)} />
      ))}
      {routed && <Routing step={step} event={routed} />}
    </>
  );
}

function TaskDetails({ task, events }: { task: PlanTask; events: RunEvent[] }): ReactNode {
  const started = events.findLast((event) => event.event_type === "task.started");
  const ends = events.filter((event) => /^task\.(attempt\.)?(done|failed)$/.test(event.event_type));
  const decided = events.findLast((event) => event.event_type === "policy.task.evaluated");
  const inputs = (started?.payload?.inputs ?? {}) as Record<string, unknown>;
  const names = [...new Set([...Object.keys(task.config), ...Object.keys(inputs)])];
  return (
    <section className={styles.block}>
      <h3>
        {task.name} <span className="quiet">{task.kind}</span>
      </h3>
      {names.length > 0 && (
        <table className={styles.inputs}>
          <caption className="hidden-visually">Inputs of {task.name}</caption>
          <thead>
            <tr>
              <th scope="col">Input</th>
              <th scope="col">As written</th>
              <th scope="col">As run</th>
            </tr>
          </thead>
          <tbody>
            {names.map((name) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>
                  <pre>{text(task.config[name])}</pre>
                </td>
                <td>
                  <pre>
                    {name in inputs ? text(inputs[name]) : <span className="quiet">{started ? "same" : "–"}</span>}
                  </pre>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {ends.map((event) => (
        <Attempt key={event.seq} event={event} />
      ))}
      {task.rules.length > 0 && (
        <Rules
          title="Policy"
          rules={task.rules.map((rule) => ({ when: rule.when, does: actionText(rule.then), line: rule.line }))}
          matched={decided ? indexOf(decided) : undefined}
        />
      )}
    </section>
  );
}

function Attempt({ event }: { event: RunEvent }): ReactNode {
  const outcome = (event.payload?.outcome ?? {}) as Record<string, unknown>;
  const error = outcome.error as Record<string, unknown> | null | undefined;
  const python = outcome.py as Record<string, unknown> | undefined;
  const failed = event.event_type.endsWith("failed");
  return (
    <div className={styles.attempt}>
      <p>
        <State state={failed ? "failed" : "done"} text={`attempt ${event.attempt ?? 1}`} />{" "}
        <span className="quiet small">
          {event.duration_ms !== undefined && spanText(event.duration_ms)}, seq {countText(event.seq)}
        </span>
      </p>
      {error ? (
        <>
          <p className={styles.wrong}>{shortText(error.message, 2000)}</p>
          {typeof python?.traceback === "string" && <pre className={styles.trace}>{python.traceback}</pre>}
        </>
      ) : (
        <Json value={outcome.data ?? outcome.result ?? null} label="Outcome" />
      )}
    </div>
  );
}

interface Rule {
  when: unknown;
  does: string;
  line: number;
}

/** Rules in order: the first whose condition holds decides; those before it did not hold, those behind it were not looked at. */
function Rules({ title, rules, matched }: { title: string; rules: Rule[]; matched: number | undefined }): ReactNode {
  return (
    <div className={styles.rules}>
      <h4>{title}</h4>
      <ol>
        {rules.map((rule, index) => (
          <li key={`${rule.line} ${rule.does} ${conditionText(rule.when)}`} data-matched={index === matched}>
            <span className="mono">{rule.when === null ? "else" : conditionText(rule.when)}</span> → {rule.does}
            <span className="quiet small">
              {" "}
              {matched === undefined
                ? ""
                : matched < 0
                  ? "did not match"
                  : index < matched
                    ? "did not match"
                    : index === matched
                      ? "matched"
                      : "not evaluated"}
              {rule.line ? `, line ${rule.line}` : ""}
            </span>
          </li>
        ))}
      </ol>
    </div>
  );
}

function Routing({ step, event }: { step: PlanStep; event: RunEvent }): ReactNode {
  const selected = (event.payload?.selected ?? []) as { arc?: number; step: string }[];
  const taken = new Set(selected.map((one) => one.arc));
  const first = Math.min(...selected.map((one) => one.arc ?? Number.POSITIVE_INFINITY));
  if (!step.arcs.length) return null;
  return (
    <section className={`${styles.block} ${styles.rules}`}>
      <h3>
        Where it went <span className="quiet small">{step.mode}</span>
      </h3>
      <ol>
        {step.arcs.map((arc, index) => (
          <li key={arc.place} data-matched={taken.has(index)}>
            → {arc.step} {arc.when !== null && <span className="mono">when {conditionText(arc.when)}</span>}
            <span className="quiet small">
              {" "}
              {taken.has(index)
                ? "taken"
                : step.mode === "exclusive" && index > first
                  ? "not evaluated"
                  : "did not match"}
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
}

function indexOf(event: RunEvent): number {
  const index = event.payload?.matched_rule_index;
  return typeof index === "number" ? index : -1;
}

function actionText(then: Record<string, unknown>): string {
  const action = String(then.do ?? "continue");
  if (action === "retry") return `retry, ${String(then.attempts ?? 3)} attempts`;
  return action === "jump" ? `jump to ${String(then.to)}` : action;
}

function text(value: unknown): string {
  if (value === undefined) return "";
  const whole = typeof value === "string" ? value : JSON.stringify(value, null, 1);
  return whole.length > 2000 ? `${whole.slice(0, 2000)}…` : whole;
}
