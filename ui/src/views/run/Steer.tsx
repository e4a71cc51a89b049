import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Ban, Pause, Play, RotateCcw } from "lucide-react";
import { type ReactNode, useState } from "react";
import { call } from "../../api/client.ts";
import { useMe } from "../../api/session.ts";
import type { ListedRun } from "../../api/types.ts";
import { toast } from "../../app/toasts.ts";
import { useCommands } from "../../lib/commands.ts";
import { pythonText } from "../../lib/forms.ts";
import { useKeys } from "../../lib/keys.ts";
import { isOver } from "../../lib/states.ts";
import { Alert } from "../../parts/Alert.tsx";
import { Button } from "../../parts/Button.tsx";
import { Shown } from "../../parts/CopyAs.tsx";
import { Dialog } from "../../parts/Dialog.tsx";
import { Field } from "../../parts/Field.tsx";

interface Action {
  signal: string;
  text: string;
  command: string;
  icon: ReactNode;
  needsReason?: boolean;
  explains: string;
}

const RETRY: Action = {
  signal: "RETRY_RUN",
  text: "Run again",
  command: "retry",
  icon: <RotateCcw size={14} />,
  explains: "Starts a new run of the same version with the same workload. This run is not changed.",
};
const PAUSE: Action = {
  signal: "PAUSE",
  text: "Pause",
  command: "pause",
  icon: <Pause size={14} />,
  explains: "Running tasks finish first. Nothing new starts until the run is resumed.",
};
const RESUME: Action = {
  signal: "RESUME",
  text: "Resume",
  command: "resume",
  icon: <Play size={14} />,
  explains: "The run continues where it was paused.",
};
const CANCEL: Action = {
  signal: "CANCEL",
  text: "Cancel",
  command: "cancel",
  icon: <Ban size={14} />,
  needsReason: true,
  explains: "The run ends immediately and cannot be resumed. Running tasks are told to stop.",
};

/** What can be done with a run. */
export function Steer({ run }: { run: ListedRun }): ReactNode {
  const [asked, setAsked] = useState<Action | null>(null);
  const me = useMe();
  const actions = isOver(run) ? [RETRY] : [run.paused ? RESUME : PAUSE, CANCEL];
  const denied = (action: Action): string => {
    if (run.imported) return "This run was imported and is read-only here: retry or fork it, or run its playbook.";
    const reason = me?.denied_signals[action.signal];
    return reason ? `You may not do this: ${reason}.` : "";
  };
  useKeys("Run", isOver(run) ? [{ keys: "r", text: "run again", run: () => setAsked(RETRY) }] : []);
  useCommands(
    actions
      .filter((action) => !denied(action))
      .map((action) => ({
        id: action.signal,
        text: `${action.text}: ${run.name}`,
        group: "This run",
        ...(action === RETRY ? { keys: "r" } : {}),
        run: () => setAsked(action),
      })),
  );
  return (
    <>
      {actions.map((action) => (
        <Button
          key={action.signal}
          kind={action === CANCEL ? "danger" : "plain"}
          icon={action.icon}
          denied={denied(action)}
          onClick={() => setAsked(action)}
        >
          {action.text}
        </Button>
      ))}
      {asked && <SteerDialog run={run} action={asked} onClose={() => setAsked(null)} />}
    </>
  );
}

function SteerDialog({ run, action, onClose }: { run: ListedRun; action: Action; onClose: () => void }): ReactNode {
  const [reason, setReason] = useState("");
  const queries = useQueryClient();
  const navigate = useNavigate();
  const id = run.execution_id;
  const body = { signal: action.signal, reason };
  const steer = useMutation({
    mutationFn: () => call("POST /api/executions/{execution_id}/signal", { path: { execution_id: id }, body }),
    onSuccess: (answer) => {
      onClose();
      void queries.invalidateQueries();
      if (!answer.accepted) toast({ kind: "failed", text: `${run.name}: not possible now`, detail: answer.message });
      else if (answer.started) {
        toast({ kind: "done", text: "New run started" });
        void navigate({ to: "/runs/$id", params: { id: answer.started } });
      } else toast({ kind: "done", text: `${run.name}: ${action.text.toLowerCase()} accepted` });
    },
  });
  return (
    <Dialog
      title={`${action.text}: ${run.name}?`}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>{action.needsReason ? "Keep running" : "Cancel"}</Button>
          <Button
            kind={action.needsReason ? "danger" : "main"}
            disabled={steer.isPending || (action.needsReason === true && !reason.trim())}
            onClick={() => steer.mutate()}
          >
            {action.text}
          </Button>
        </>
      }
    >
      <p>{action.explains}</p>
      <Field
        label={action.needsReason ? "Reason" : "Reason (optional)"}
        autoFocus
        value={reason}
        onChange={(event) => setReason(event.target.value)}
        hint="Recorded in the run's log with your name."
      />
      {steer.isError && <Alert error={steer.error} />}
      <Shown
        actions={{
          [action.text]: {
            cli: [action.command, id, ...(reason ? ["--reason", reason] : [])],
            route: "POST /api/executions/{execution_id}/signal",
            path: { execution_id: id },
            body,
            python: `client.signal(${pythonText(id)}, SignalRequest(${pythonText(action.signal)}, reason=${pythonText(reason)}))`,
          },
        }}
      />
    </Dialog>
  );
}
