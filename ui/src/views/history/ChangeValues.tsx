import type { ReactNode } from "react";
import { flagsOf, renamedOf, workloadOf } from "../../lib/assignments.ts";
import { pythonText } from "../../lib/forms.ts";
import styles from "./ChangeValues.module.css";

/** What is changed beside the playbook, as it was typed: lines of `PATH=VALUE`, and of `OLD=NEW`. */
export interface Typed {
  workload: string;
  map: string;
}

export const NOTHING_TYPED: Typed = { workload: "", map: "" };

/** The same as a request, a command and Python have it; `wrong` when some line cannot be taken. */
export function changesOf(typed: Typed) {
  const workload = workloadOf(typed.workload);
  const map = renamedOf(typed.map);
  const body: { workload?: Record<string, unknown>; map?: Record<string, string> } = {
    ...(Object.keys(workload.values).length ? { workload: workload.values } : {}),
    ...(Object.keys(map.values).length ? { map: map.values } : {}),
  };
  return {
    body,
    cli: [...flagsOf("--set", typed.workload), ...flagsOf("--map", typed.map)],
    python: Object.entries(body).map(([name, value]) => `${name}=${pythonText(value)}`),
    wrong: { workload: workload.wrong, map: map.wrong },
    isWrong: Boolean(workload.wrong || map.wrong),
  };
}

interface Props {
  typed: Typed;
  wrong: Typed;
  onChange: (typed: Typed) => void;
}

/** Other values in the place of recorded ones, and steps that have another name in the changed playbook. */
export function ChangeValues({ typed, wrong, onChange }: Props): ReactNode {
  return (
    <details className={styles.details}>
      <summary>Change workload values or step names</summary>
      <div className={styles.changes}>
        <Lines
          label="Workload values, one PATH=VALUE per line"
          placeholder="limit=100"
          text={typed.workload}
          wrong={wrong.workload}
          onChange={(workload) => onChange({ ...typed, workload })}
        />
        <Lines
          label="Renamed steps, one OLD=NEW per line"
          placeholder="fetch=load"
          text={typed.map}
          wrong={wrong.map}
          onChange={(map) => onChange({ ...typed, map })}
        />
      </div>
    </details>
  );
}

interface LinesProps {
  label: string;
  placeholder: string;
  text: string;
  wrong: string;
  onChange: (text: string) => void;
}

function Lines({ label, placeholder, text, wrong, onChange }: LinesProps): ReactNode {
  return (
    <label>
      {label}
      <textarea
        rows={2}
        spellCheck={false}
        placeholder={placeholder}
        value={text}
        aria-invalid={wrong !== ""}
        onChange={(event) => onChange(event.target.value)}
      />
      {wrong && <span role="alert">{wrong}</span>}
    </label>
  );
}
