import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { call } from "../../api/client.ts";
import type { ListedRun } from "../../api/types.ts";
import { toast } from "../../app/toasts.ts";
import { type ActionForm, pythonText } from "../../lib/forms.ts";
import { Alert } from "../../parts/Alert.tsx";
import { Button } from "../../parts/Button.tsx";
import { Shown } from "../../parts/CopyAs.tsx";
import { Dialog } from "../../parts/Dialog.tsx";
import { ChangeValues, changesOf, NOTHING_TYPED, type Typed } from "../history/ChangeValues.tsx";
import { type Choice, ChoosePlaybook, useChosenText } from "../history/ChoosePlaybook.tsx";
import type { Kept, Way } from "./Continue.tsx";

type Changes = ReturnType<typeof changesOf>;

/** The same for a script. `playbook` is the name of a file, where the playbook is changed. */
function formOf(id: string, kept: Kept, playbook: string, changes: Changes): ActionForm {
  const isFork = "at" in kept;
  const [flags, field] = isFork
    ? [["--at", String(kept.at)], `at=${kept.at}`]
    : "from" in kept
      ? [["--from", kept.from], `step=${pythonText(kept.from)}`]
      : [["--failed"], "failed=True"];
  const fields = [field, ...(playbook ? [`playbook=open(${pythonText(playbook)}).read()`] : []), ...changes.python];
  return {
    cli: [isFork ? "fork" : "retry", id, ...flags, ...(playbook ? ["--playbook", playbook] : []), ...changes.cli],
    route: isFork ? "POST /api/executions/{execution_id}/fork" : "POST /api/executions/{execution_id}/retry",
    path: { execution_id: id },
    body: { ...kept, ...changes.body, ...(playbook ? { playbook: "…" } : {}) },
    python: `client.fork(${pythonText(id)}, ForkRequest(${fields.join(", ")}))`,
  };
}

/** Start the new run; its id. */
async function started(id: string, kept: Kept, changes: Changes["body"] & { playbook?: string }): Promise<string> {
  const path = { execution_id: id };
  if ("at" in kept) {
    return (await call("POST /api/executions/{execution_id}/fork", { path, body: { ...kept, ...changes } }))
      .execution_id;
  }
  const answer = await call("POST /api/executions/{execution_id}/retry", { path, body: { ...kept, ...changes } });
  return answer.started ?? answer.execution_id;
}

/** Asks what a new run goes on with: which playbook, and which values in the place of recorded ones. */
export function ContinueDialog({ run, way, onClose }: { run: ListedRun; way: Way; onClose: () => void }): ReactNode {
  const [choice, setChoice] = useState<Choice>({ kind: "own" });
  const queries = useQueryClient();
  const navigate = useNavigate();
  const id = run.execution_id;
  const isOwn = choice.kind === "own";
  const text = useChosenText({ path: run.path, run: id }, choice);
  const [typed, setTyped] = useState<Typed>(NOTHING_TYPED);
  const changes = changesOf(typed);
  const start = useMutation({
    mutationFn: () =>
      started(id, way.kept, isOwn || text === undefined ? changes.body : { ...changes.body, playbook: text }),
    onSuccess: (made) => {
      onClose();
      void queries.invalidateQueries();
      toast({ kind: "done", text: "New run started" });
      void navigate({ to: "/runs/$id", params: { id: made } });
    },
  });
  return (
    <Dialog
      title={`${way.text}?`}
      onClose={onClose}
      wide={choice.kind === "typed"}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button
            kind="main"
            disabled={start.isPending || changes.isWrong || (!isOwn && text === undefined)}
            onClick={() => start.mutate()}
          >
            {way.text}
          </Button>
        </>
      }
    >
      <p>{way.explains}</p>
      <p className="small">Playbook of the new run</p>
      <ChoosePlaybook
        label="Playbook of the new run"
        path={run.path}
        run={id}
        own={`v${run.version}, as it ran`}
        choice={choice}
        onChange={setChoice}
      />
      <ChangeValues typed={typed} wrong={changes.wrong} onChange={setTyped} />
      {start.isError && <Alert error={start.error} />}
      <Shown actions={{ [way.text]: formOf(id, way.kept, isOwn ? "" : "changed.yaml", changes) }} />
    </Dialog>
  );
}
