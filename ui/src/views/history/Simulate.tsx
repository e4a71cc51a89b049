import { useMutation } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { call } from "../../api/client.ts";
import { useDenied } from "../../api/session.ts";
import type { SimulatedCall, SimulatedRun, SimulationReport } from "../../api/types.ts";
import { shortText } from "../../lib/diff.ts";
import { pythonText } from "../../lib/forms.ts";
import { countText, plural } from "../../lib/numbers.ts";
import type { State as StateName } from "../../lib/states.ts";
import { Alert } from "../../parts/Alert.tsx";
import { Banner } from "../../parts/Banner.tsx";
import { Button } from "../../parts/Button.tsx";
import { CopyAs } from "../../parts/CopyAs.tsx";
import { Select } from "../../parts/Field.tsx";
import { State } from "../../parts/State.tsx";
import { ChangeValues, changesOf, NOTHING_TYPED, type Typed } from "./ChangeValues.tsx";
import { type Choice, ChoosePlaybook, useChosenText } from "./ChoosePlaybook.tsx";
import styles from "./History.module.css";

/** Runs that the server simulates in one request, at most. */
const MOST_RUNS = 1000;
/** Rows that are shown at once. */
const ROWS = 100;

const VERDICTS: Record<string, { state: StateName; text: string }> = {
  same: { state: "done", text: "same" },
  result: { state: "waiting", text: "different result" },
  path: { state: "retrying", text: "different path" },
  unanswered: { state: "queued", text: "no recorded answer" },
  refused: { state: "failed", text: "would not start" },
  cut: { state: "waiting", text: "cut off" },
};

interface Props {
  path: string;
  /** the run of the page */
  run?: string;
  /** the text in the page's editor */
  draft?: string | undefined;
  /** of its title; where it is a part of a tab, the tab's */
  heading?: "h2" | "h3";
}

/** Try a playbook on recorded runs: which of them would have taken another path, where, and what has no recorded answer. */
export function Simulate({ path, run, draft, heading: Heading = "h3" }: Props): ReactNode {
  const [choice, setChoice] = useState<Choice>(draft === undefined ? { kind: "own" } : { kind: "draft" });
  const [on, setOn] = useState<"this" | "last">(run ? "this" : "last");
  const [last, setLast] = useState(100);
  const [isStrict, setStrict] = useState(false);
  const text = useChosenText({ path, run, draft }, choice);
  const denied = useDenied("POST /api/simulate");
  const runs = on === "this" && run ? { runs: [run] } : { last };
  const [typed, setTyped] = useState<Typed>(NOTHING_TYPED);
  const changes = changesOf(typed);
  const options = { ...runs, ...(isStrict ? { strict: true } : {}) };
  const simulate = useMutation({
    mutationFn: (playbook: string) => call("POST /api/simulate", { body: { playbook, ...options, ...changes.body } }),
  });
  const isFitting = on === "this" || (Number.isSafeInteger(last) && last >= 1 && last <= MOST_RUNS);
  return (
    <section className={styles.part} aria-label="Simulate">
      <Heading>Simulate</Heading>
      <p className="quiet small">
        Runs a playbook against recorded outcomes: each task gets its answer from the log, and nothing is executed.
      </p>
      <div className={styles.line}>
        <ChoosePlaybook
          label="Playbook to simulate"
          path={path}
          run={run}
          draft={draft}
          choice={choice}
          onChange={setChoice}
          {...(run ? { own: "Version it ran with" } : {})}
        />
        <span className="small">on</span>
        {run ? (
          <Select
            label="Runs to simulate it on"
            value={on}
            options={[
              ["this", "This run"],
              ["last", "the latest runs"],
            ]}
            onChange={setOn}
          />
        ) : (
          <span className="small">the latest</span>
        )}
        {on === "last" && (
          <input
            className={styles.count}
            type="number"
            min={1}
            max={MOST_RUNS}
            aria-label="How many of the latest runs"
            value={Number.isNaN(last) ? "" : last}
            onChange={(event) => setLast(event.target.valueAsNumber)}
          />
        )}
        {on === "last" && <span className="small">runs</span>}
        <label className={styles.check}>
          <input type="checkbox" checked={isStrict} onChange={(event) => setStrict(event.target.checked)} />
          strict
        </label>
        <Button
          denied={denied}
          disabled={simulate.isPending || !text || !isFitting || changes.isWrong}
          onClick={() => text && simulate.mutate(text)}
        >
          {simulate.isPending ? "Simulating …" : "Simulate"}
        </Button>
        <CopyAs
          actions={{
            simulate: {
              cli: [
                "simulate",
                "changed.yaml",
                ...(runs.runs ? ["--from", ...runs.runs] : ["--last", String(last)]),
                ...(isStrict ? ["--strict"] : []),
                ...changes.cli,
              ],
              route: "POST /api/simulate",
              body: { playbook: "…", ...options, ...changes.body },
              python: `client.simulate(SimulateRequest(open("changed.yaml").read(), ${[
                ...Object.entries(options).map(([name, value]) => `${name}=${pythonText(value)}`),
                ...changes.python,
              ].join(", ")}))`,
            },
          }}
        />
      </div>
      <ChangeValues typed={typed} wrong={changes.wrong} onChange={setTyped} />
      {isStrict && (
        <p className="quiet small">Strict: a call counts as answered only if its inputs and code are unchanged.</p>
      )}
      {simulate.isError && <Alert error={simulate.error} />}
      {simulate.data && <Report report={simulate.data} />}
    </section>
  );
}

function Report({ report }: { report: SimulationReport }): ReactNode {
  const [most, setMost] = useState(ROWS);
  const changed = report.runs.filter((one) => one.verdict !== "same");
  const counts = Object.entries(report.verdicts).map(
    ([verdict, count]) => `${countText(count)} ${VERDICTS[verdict]?.text ?? verdict}`,
  );
  return (
    <>
      <Banner state={!report.runs.length ? "queued" : report.ok ? "done" : "waiting"}>
        <p>
          {!report.runs.length
            ? "There is no recorded run of this playbook."
            : report.ok
              ? `${plural(report.runs.length, "run")} would take the same path to the same result.`
              : `${countText(changed.length)} of ${plural(report.runs.length, "run")} would go differently.`}
        </p>
        <p className="quiet small">
          {plural(report.steps, "step")} simulated{counts.length ? `: ${counts.join(", ")}` : ""}
        </p>
      </Banner>
      {changed.length > 0 && (
        <table className={styles.table}>
          <caption className="hidden-visually">Runs with a different outcome</caption>
          <thead>
            <tr>
              <th scope="col">Run</th>
              <th scope="col">Verdict</th>
              <th scope="col">Recorded → simulated</th>
              <th scope="col">Where</th>
            </tr>
          </thead>
          <tbody>
            {changed.slice(0, most).map((one) => (
              <Row key={one.execution_id} run={one} />
            ))}
          </tbody>
        </table>
      )}
      {changed.length > most && (
        <Button onClick={() => setMost(most + 10 * ROWS)}>Show {countText(changed.length - most)} more</Button>
      )}
      <Calls title="Calls without a recorded answer" calls={report.runs.flatMap((one) => one.unanswered)} />
      <Calls
        title="Calls with changed inputs or code (answered from the log)"
        calls={report.runs.flatMap((one) => one.assumed)}
      />
    </>
  );
}

function Row({ run }: { run: SimulatedRun }): ReactNode {
  const verdict = VERDICTS[run.verdict] ?? { state: "queued" as const, text: run.verdict };
  const { step, seq, cause } = (run.divergence ?? {}) as { step?: string; seq?: number; cause?: string };
  const [call] = run.unanswered;
  const where =
    cause ??
    (run.result
      ? `the result was ${shortText(run.result.recorded, 60)} and would be ${shortText(run.result.simulated, 60)}`
      : call
        ? `${nameOf(call)} has no recorded answer`
        : run.problem);
  return (
    <tr>
      <td>
        <Link to="/runs/$id" params={{ id: run.execution_id }}>
          {run.execution_id}
        </Link>
      </td>
      <td>
        <State {...verdict} />
      </td>
      <td>
        {run.recorded.toLowerCase()} → {run.simulated.toLowerCase()}
      </td>
      <td>
        {where}{" "}
        {seq ? (
          <Link to="/runs/$id" params={{ id: run.execution_id }} search={{ seq, ...(step ? { step } : {}) }}>
            event {countText(seq)}
          </Link>
        ) : null}
      </td>
    </tr>
  );
}

/** Calls of all runs together: what was called, why, and how often. */
function Calls({ title, calls }: { title: string; calls: SimulatedCall[] }): ReactNode {
  const counts = new Map<string, number>();
  for (const call of calls) {
    const line = `${call.step}.${call.task} (${call.kind}): ${call.reason}`;
    counts.set(line, (counts.get(line) ?? 0) + 1);
  }
  if (!counts.size) return null;
  return (
    <div className={styles.part}>
      <p className={styles.title}>{title}</p>
      <ul className={styles.calls}>
        {[...counts].slice(0, ROWS).map(([line, count]) => (
          <li key={line}>
            {line} <span className="quiet">{plural(count, "time")}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

function nameOf(call: SimulatedCall): string {
  return `${call.step}${call.item.length ? `[${call.item.join(".")}]` : ""}.${call.task}`;
}
