import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { checkQuery, sourceQuery, versionQuery, versionsQuery } from "../../api/queries.ts";
import { useRested } from "../../lib/rested.ts";
import { Select } from "../../parts/Field.tsx";
import { LazyEditor } from "../../parts/LazyEditor.tsx";
import styles from "./History.module.css";

/** Which text a recorded run is tried or continued with: a run's own, one of the catalog, the editor's, or one that is typed here. */
export type Choice =
  | { kind: "own" }
  | { kind: "draft" }
  | { kind: "version"; version: number }
  | { kind: "typed"; text: string };

interface Source {
  path: string;
  /** the run whose own text may be chosen */
  run?: string | undefined;
  /** the text that stands in the page's editor, where it has one */
  draft?: string | undefined;
}

/** The text that was chosen; undefined while it is being loaded. */
export function useChosenText({ path, run, draft }: Source, choice: Choice): string | undefined {
  const own = useQuery({ ...sourceQuery(run ?? ""), enabled: run !== undefined });
  const version = choice.kind === "version" ? choice.version : 0;
  const chosen = useQuery({ ...versionQuery(path, version), enabled: choice.kind === "version" });
  switch (choice.kind) {
    case "own":
      return own.data;
    case "draft":
      return draft;
    case "version":
      return chosen.data?.source;
    case "typed":
      return choice.text;
  }
}

interface Props extends Source {
  label: string;
  choice: Choice;
  /** what `own` is called */
  own?: string;
  onChange: (choice: Choice) => void;
}

export function ChoosePlaybook({ label, choice, own, onChange, ...source }: Props): ReactNode {
  const versions = useQuery(versionsQuery(source.path));
  const text = useChosenText(source, choice);
  const options: [string, string][] = [
    ...(source.draft === undefined ? [] : [["draft", "Text in the editor"] as [string, string]]),
    ...(own === undefined ? [] : [["own", own] as [string, string]]),
    ...(versions.data?.versions ?? []).map((one): [string, string] => [`${one.version}`, `v${one.version}`]),
    // It begins with the text that is chosen now.
    ...(text === undefined ? [] : [["typed", "Edited text …"] as [string, string]]),
  ];
  const value = choice.kind === "version" ? `${choice.version}` : choice.kind;
  return (
    <>
      <Select
        label={label}
        value={value}
        options={options}
        onChange={(next) => {
          if (next === "own" || next === "draft") onChange({ kind: next });
          else if (next === "typed") onChange({ kind: "typed", text: text ?? "" });
          else onChange({ kind: "version", version: Number(next) });
        }}
      />
      {choice.kind === "typed" && (
        <TypedText text={choice.text} onChange={(typed) => onChange({ kind: "typed", text: typed })} />
      )}
    </>
  );
}

function TypedText({ text, onChange }: { text: string; onChange: (text: string) => void }): ReactNode {
  const [begun] = useState(text);
  const checked = useQuery(checkQuery(useRested(text)));
  const findings = checked.data?.findings ?? [];
  return (
    <div style={{ flexBasis: "100%" }}>
      <div className={styles.editor}>
        <LazyEditor text={begun} label="Playbook source" findings={findings} onChange={onChange} />
      </div>
      <p className="quiet small">
        {findings[0]
          ? `${findings[0].severity} ${findings[0].line}:${findings[0].column}: ${findings[0].message}`
          : checked.data
            ? "No problems found."
            : "Checking …"}
      </p>
    </div>
  );
}
