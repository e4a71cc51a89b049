import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useEffect, useMemo, useState } from "react";
import { call } from "../../api/client.ts";
import { checkQuery } from "../../api/queries.ts";
import { planOf, stepAtLine } from "../../lib/plan.ts";
import type { Schema } from "../../lib/schema.ts";
import { LazyEditor } from "../../parts/LazyEditor.tsx";
import { LazyGraph } from "../../parts/LazyGraph.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import styles from "./Playbooks.module.css";

/** Whoever types is checked when they rest. */
const REST_MS = 300;

interface Props {
  /** to begin with */
  text: string;
  step: string | undefined;
  onStep: (step: string | undefined) => void;
  onChange: (text: string) => void;
}

/** The text beside its graph: what is selected in one is selected in the other, and findings stand where they belong. */
export function EditAndGraph({ text: given, step, onStep, onChange }: Props): ReactNode {
  const [text] = useState(given);
  const [typed, setTyped] = useState(text);
  const [rested, setRested] = useState(text);
  const [goTo, setGoTo] = useState<{ line: number; at: number } | undefined>(undefined);
  useEffect(() => {
    const timer = setTimeout(() => setRested(typed), REST_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  const checked = useQuery(checkQuery(rested));
  const schema = useQuery({
    queryKey: ["schema"],
    queryFn: ({ signal }) => call("GET /api/check/schema", { signal }),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const findings = checked.data?.findings ?? [];
  // While there is an error, the last graph that could be made stays.
  const [plan, setPlan] = useState(() => planOf(null));
  useEffect(() => {
    const next = planOf(checked.data?.graph);
    if (next) setPlan(next);
  }, [checked.data]);
  const errors = findings.filter((one) => one.severity === "error").length;
  const lineOf = useMemo(() => new Map(plan?.steps.map((one) => [one.name, one.line])), [plan]);
  return (
    <div className={styles.split}>
      <section className={styles.half} aria-label="Source">
        <div className={styles.editor}>
          <LazyEditor
            text={text}
            label="Playbook source"
            findings={findings}
            schema={schema.data as Schema | undefined}
            goTo={goTo}
            onChange={(next) => {
              setTyped(next);
              onChange(next);
            }}
            onLine={(line) => {
              const found = plan ? stepAtLine(plan, line) : undefined;
              if (found && found !== step) onStep(found);
            }}
          />
        </div>
        <ul className={styles.findings} aria-label="Findings">
          {findings.map((one) => (
            <li key={`${one.line} ${one.column} ${one.code} ${one.message}`}>
              <button type="button" onClick={() => setGoTo({ line: one.line, at: Date.now() })}>
                <span className={styles[one.severity]}>
                  {one.severity} {one.line}:{one.column}
                </span>
                <span>
                  {one.message} {one.hint && <span className="quiet">{one.hint}</span>}
                </span>
              </button>
            </li>
          ))}
          {checked.data && findings.length === 0 && (
            <li>
              <button type="button" disabled>
                <span className="quiet">No problems found.</span>
              </button>
            </li>
          )}
        </ul>
      </section>
      <section className={styles.half} aria-label="Graph" data-stale={errors > 0}>
        <div className={styles.grow}>
          {plan ? (
            <LazyGraph
              plan={plan}
              selected={step}
              onSelect={(name) => {
                onStep(name);
                setGoTo({ line: lineOf.get(name) ?? 1, at: Date.now() });
              }}
              label="Graph of the playbook"
            />
          ) : (
            <Skeleton lines={3} height={3} />
          )}
        </div>
      </section>
    </div>
  );
}
