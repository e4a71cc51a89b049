import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { call } from "../../api/client.ts";
import { checkQuery, versionQuery } from "../../api/queries.ts";
import { toast } from "../../app/toasts.ts";
import { pythonText } from "../../lib/forms.ts";
import { fieldsOf, givenBy, type InputField, initialText } from "../../lib/inputs.ts";
import { planOf } from "../../lib/plan.ts";
import { Alert } from "../../parts/Alert.tsx";
import { Button } from "../../parts/Button.tsx";
import { Shown } from "../../parts/CopyAs.tsx";
import { Dialog } from "../../parts/Dialog.tsx";
import { Field, Select } from "../../parts/Field.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import styles from "./Playbooks.module.css";

interface Props {
  path: string;
  /** 0: the newest */
  version: number;
  onClose: () => void;
}

/** Start a run of a registered playbook: a field for each value of its workload. */
export function RunForm({ path, version, onClose }: Props): ReactNode {
  const shown = useQuery(versionQuery(path, version));
  const checked = useQuery({ ...checkQuery(shown.data?.source ?? ""), enabled: Boolean(shown.data) });
  const plan = planOf(checked.data?.graph);
  return (
    <Dialog title={`Run ${path}`} onClose={onClose} wide>
      {shown.isError ? (
        <Trouble what="The playbook" error={shown.error} />
      ) : plan ? (
        <Fields path={path} version={version} fields={fieldsOf(plan.workload, plan.inputs ?? {})} onClose={onClose} />
      ) : checked.data ? (
        <Alert error={`This version cannot run: ${checked.data.findings[0]?.message}`} />
      ) : (
        <Skeleton lines={3} />
      )}
    </Dialog>
  );
}

function Fields({ path, version, fields, onClose }: Props & { fields: InputField[] }): ReactNode {
  const [texts, setTexts] = useState<Record<string, string>>(() =>
    Object.fromEntries(fields.map((field) => [field.name, initialText(field)])),
  );
  // What is wrong is said once somebody has tried.
  const [isTried, setTried] = useState(false);
  const navigate = useNavigate();
  const queries = useQueryClient();
  const given: Record<string, unknown> = {};
  const shown: Record<string, unknown> = {};
  const wrong: Record<string, string> = {};
  for (const field of fields) {
    const found = givenBy(field, texts[field.name] ?? "");
    if (found.wrong) wrong[field.name] = found.wrong;
    if (!found.given) continue;
    given[field.name] = found.value;
    // A secret is sent and nothing else: it is in no command that is shown.
    shown[field.name] = field.kind === "secret" ? "…" : found.value;
  }
  const body = { path, ...(version ? { version } : {}), workload: given };
  const start = useMutation({
    mutationFn: () => call("POST /api/executions", { body }),
    onSuccess: (started) => {
      onClose();
      toast({ kind: "done", text: `${path} started` });
      void queries.invalidateQueries({ queryKey: ["runs"] });
      void navigate({ to: "/runs/$id", params: { id: started.execution_id } });
    },
  });
  const sets = Object.entries(shown).flatMap(([name, value]) => [
    "--set",
    `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`,
  ]);
  return (
    <form
      className={styles.form}
      onSubmit={(event) => {
        event.preventDefault();
        setTried(true);
        if (!Object.keys(wrong).length) start.mutate();
      }}
    >
      {fields.length === 0 && <p className="quiet">This playbook has no inputs.</p>}
      {fields.map((field, index) => (
        <Value
          key={field.name}
          isFirst={index === 0}
          field={field}
          text={texts[field.name] ?? ""}
          wrong={isTried || texts[field.name] !== initialText(field) ? (wrong[field.name] ?? "") : ""}
          onChange={(text) => setTexts({ ...texts, [field.name]: text })}
        />
      ))}
      {start.isError && <Alert error={start.error} />}
      <Shown
        actions={{
          run: {
            cli: ["run", version ? `${path}@${version}` : path, ...sets],
            route: "POST /api/executions",
            body: { ...body, workload: shown },
            python: `client.execute(ExecuteRequest(path=${pythonText(path)}, workload=${pythonText(shown)}))`,
          },
        }}
      />
      <div className={styles.formFoot}>
        <Button onClick={onClose}>Cancel</Button>
        <Button kind="main" type="submit" disabled={start.isPending}>
          Start
        </Button>
      </div>
    </form>
  );
}

interface ValueProps {
  /** it has the focus when the form opens */
  isFirst: boolean;
  field: InputField;
  text: string;
  wrong: string;
  onChange: (text: string) => void;
}

function Value({ isFirst, field, text, wrong, onChange }: ValueProps): ReactNode {
  const { name, kind, isRequired, description } = field;
  const label = isRequired ? `${name} (required)` : name;
  if (kind === "boolean") {
    return (
      <label className={styles.check}>
        <input type="checkbox" checked={text === "true"} onChange={(event) => onChange(String(event.target.checked))} />
        {label}
        {description && <span className="quiet small">{description}</span>}
      </label>
    );
  }
  if (kind === "choice") {
    return (
      <div className={styles.area}>
        <span>{label}</span>
        <Select
          label={name}
          value={text}
          options={[
            ...(text ? [] : [["", "choose …"] as [string, string]]),
            ...field.options.map((one): [string, string] => [one, one]),
          ]}
          onChange={onChange}
        />
        {description && <p className="quiet small">{description}</p>}
        {wrong && <span role="alert">{wrong}</span>}
      </div>
    );
  }
  if (kind === "json") {
    return (
      <label className={styles.area}>
        {label}
        <textarea
          rows={Math.min(8, text.split("\n").length + 1)}
          spellCheck={false}
          value={text}
          aria-invalid={wrong !== ""}
          onChange={(event) => onChange(event.target.value)}
        />
        {description && <p className="quiet small">{description}</p>}
        {wrong && <span role="alert">{wrong}</span>}
      </label>
    );
  }
  const isSecret = kind === "secret";
  return (
    <Field
      label={label}
      autoFocus={isFirst}
      value={text}
      placeholder={field.placeholder}
      type={isSecret ? "password" : "text"}
      autoComplete={isSecret ? "new-password" : "off"}
      inputMode={kind === "number" ? "decimal" : undefined}
      aria-invalid={wrong !== ""}
      hint={wrong || description || (isSecret ? "Not stored in the log; discarded when the run ends." : undefined)}
      onChange={(event) => onChange(event.target.value)}
    />
  );
}
