import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Ban, GitCompareArrows, RotateCcw, X } from "lucide-react";
import { type ReactNode, useState } from "react";
import { call } from "../../api/client.ts";
import { messageOf } from "../../api/problem.ts";
import { useSignalDenied } from "../../api/session.ts";
import type { ListedRun } from "../../api/types.ts";
import { toast } from "../../app/toasts.ts";
import { useCommands } from "../../lib/commands.ts";
import { type ActionForm, pythonText } from "../../lib/forms.ts";
import { useKeys } from "../../lib/keys.ts";
import { plural } from "../../lib/numbers.ts";
import { isOver } from "../../lib/states.ts";
import { Button, IconButton } from "../../parts/Button.tsx";
import { Shown } from "../../parts/CopyAs.tsx";
import { Dialog } from "../../parts/Dialog.tsx";
import { Field } from "../../parts/Field.tsx";
import styles from "./Runs.module.css";

/** Requests of one action that are under way at a time. */
const AT_ONCE = 4;

interface Action {
  signal: "CANCEL" | "RETRY_RUN";
  title: string;
  verb: string;
  done: string;
  /** which of the chosen runs it is for */
  fits: (run: ListedRun) => boolean;
  /** why not for so many others */
  others: (count: number) => string;
  cli: (run: ListedRun, reason: string) => string[];
}

const CANCEL: Action = {
  signal: "CANCEL",
  title: "Cancel",
  verb: "Cancel",
  done: "cancelled",
  fits: (run) => !isOver(run),
  others: (count) => `${plural(count, "run has", "runs have")} already ended and will not be changed.`,
  cli: (run, reason) => ["cancel", run.execution_id, "--reason", reason || "…"],
};
const RETRY: Action = {
  signal: "RETRY_RUN",
  title: "Run again",
  verb: "Run again",
  done: "started again",
  fits: isOver,
  others: (count) => `${plural(count, "run is", "runs are")} still in progress and cannot be run again yet.`,
  cli: (run, reason) => ["retry", run.execution_id, ...(reason ? ["--reason", reason] : [])],
};

/** What can be done with the runs that are chosen. */
export function Bulk({ chosen, onClear }: { chosen: ListedRun[]; onClear: () => void }): ReactNode {
  const [asked, setAsked] = useState<Action | null>(null);
  const navigate = useNavigate();
  const noCancel = useSignalDenied("CANCEL");
  const noRetry = useSignalDenied("RETRY_RUN");
  const [first, second] = chosen;
  const isPair = chosen.length === 2 && first !== undefined && second !== undefined;
  const compare = (): void => {
    if (isPair) void navigate({ to: "/runs/compare", search: { a: second.execution_id, b: first.execution_id } });
  };
  const some = chosen.length > 0;
  useKeys(
    "Selected runs",
    some
      ? [
          { keys: "r", text: "run the selected runs again", run: () => !noRetry && setAsked(RETRY) },
          { keys: "Escape", text: "clear the selection", run: onClear },
        ]
      : [],
  );
  const group = plural(chosen.length, "selected run");
  useCommands(
    some
      ? [
          { id: "cancel", text: `Cancel ${group}`, group: "Selection", run: () => setAsked(CANCEL) },
          { id: "retry", text: `Run ${group} again`, group: "Selection", keys: "r", run: () => setAsked(RETRY) },
          ...(isPair ? [{ id: "compare", text: "Compare the selected runs", group: "Selection", run: compare }] : []),
        ]
      : [],
  );
  if (!some) return null;
  return (
    <div className={styles.bulk} role="toolbar" aria-label="Selected runs">
      <span className={styles.count}>{plural(chosen.length, "run")} selected</span>
      <Button icon={<Ban size={14} />} denied={noCancel} onClick={() => setAsked(CANCEL)}>
        Cancel
      </Button>
      <Button icon={<RotateCcw size={14} />} denied={noRetry} onClick={() => setAsked(RETRY)}>
        Run again
      </Button>
      <Button
        icon={<GitCompareArrows size={14} />}
        denied={isPair ? "" : "Two runs can be compared: select exactly two."}
        onClick={compare}
      >
        Compare
      </Button>
      <IconButton label="Clear the selection" icon={<X size={16} />} onClick={onClear} />
      {asked && <BulkDialog action={asked} runs={chosen} onClose={() => setAsked(null)} onDone={onClear} />}
    </div>
  );
}

interface DialogProps {
  action: Action;
  runs: ListedRun[];
  onClose: () => void;
  onDone: () => void;
}

function BulkDialog({ action, runs, onClose, onDone }: DialogProps): ReactNode {
  const [reason, setReason] = useState("");
  const [progress, setProgress] = useState<number | null>(null);
  const queries = useQueryClient();
  const fitting = runs.filter(action.fits);
  const needsReason = action.signal === "CANCEL";
  const [sample] = fitting;
  const carryOut = async (): Promise<void> => {
    const failures: string[] = [];
    const waiting = [...fitting];
    let done = 0;
    setProgress(0);
    const work = async (): Promise<void> => {
      for (let run = waiting.shift(); run; run = waiting.shift()) {
        try {
          const answer = await call("POST /api/executions/{execution_id}/signal", {
            path: { execution_id: run.execution_id },
            body: { signal: action.signal, reason },
          });
          if (!answer.accepted) failures.push(`${run.name}: ${answer.message}`);
        } catch (error) {
          failures.push(`${run.name}: ${messageOf(error)}`);
        }
        done += 1;
        setProgress(done);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    void queries.invalidateQueries({ queryKey: ["runs"] });
    onClose();
    onDone();
    const good = fitting.length - failures.length;
    if (failures.length) {
      const [problem] = failures;
      toast({
        kind: "failed",
        text: `${good} of ${plural(fitting.length, "run")} ${action.done}`,
        detail: problem ?? "",
      });
    } else toast({ kind: "done", text: `${plural(good, "run")} ${action.done}` });
  };
  const forms: Record<string, ActionForm> = sample
    ? {
        "for each run": {
          cli: action.cli(sample, reason),
          route: "POST /api/executions/{execution_id}/signal",
          path: { execution_id: sample.execution_id },
          body: { signal: action.signal, reason },
          python: `client.signal(${pythonText(sample.execution_id)}, SignalRequest(${pythonText(action.signal)}, reason=${pythonText(reason)}))`,
        },
      }
    : {};
  return (
    <Dialog
      title={
        fitting.length ? `${action.title} ${plural(fitting.length, "run")}?` : `Nothing to ${action.verb.toLowerCase()}`
      }
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>{fitting.length === 0 ? "Close" : needsReason ? "Keep running" : "Cancel"}</Button>
          {fitting.length > 0 && (
            <Button
              kind={needsReason ? "danger" : "main"}
              disabled={progress !== null || (needsReason && !reason.trim())}
              onClick={() => void carryOut()}
            >
              {progress === null
                ? `${action.verb} ${plural(fitting.length, "run")}`
                : `${progress} of ${fitting.length} …`}
            </Button>
          )}
        </>
      }
    >
      {fitting.length < runs.length && <p>{action.others(runs.length - fitting.length)}</p>}
      {fitting.length > 0 && (
        <>
          <Field
            label={needsReason ? "Reason" : "Reason (optional)"}
            autoFocus
            value={reason}
            onChange={(event) => setReason(event.target.value)}
            hint="Recorded in the log of each run with your name."
          />
          <Shown actions={forms} />
        </>
      )}
    </Dialog>
  );
}
