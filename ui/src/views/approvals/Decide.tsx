import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Check, X } from "lucide-react";
import { type ReactNode, useState } from "react";
import { call } from "../../api/client.ts";
import { useSignalDenied } from "../../api/session.ts";
import type { Approval } from "../../api/types.ts";
import { toast } from "../../app/toasts.ts";
import type { ActionForm } from "../../lib/forms.ts";
import { pythonText } from "../../lib/forms.ts";
import { Alert } from "../../parts/Alert.tsx";
import { Button } from "../../parts/Button.tsx";
import { Shown } from "../../parts/CopyAs.tsx";
import { Dialog } from "../../parts/Dialog.tsx";
import { Field } from "../../parts/Field.tsx";

type Verdict = "APPROVE" | "REJECT";

/** Approve or reject: what it is about stands in the dialog, and a rejection has a reason. */
export function Decide({ approval }: { approval: Approval }): ReactNode {
  const [asked, setAsked] = useState<Verdict | null>(null);
  const mayApprove = useSignalDenied("APPROVE");
  const mayReject = useSignalDenied("REJECT");
  return (
    <>
      <Button icon={<Check size={14} />} denied={mayApprove} onClick={() => setAsked("APPROVE")}>
        Approve
      </Button>
      <Button kind="quiet" icon={<X size={14} />} denied={mayReject} onClick={() => setAsked("REJECT")}>
        Reject
      </Button>
      {asked && <DecideDialog approval={approval} verdict={asked} onClose={() => setAsked(null)} />}
    </>
  );
}

interface DialogProps {
  approval: Approval;
  verdict: Verdict;
  onClose: () => void;
}

function DecideDialog({ approval, verdict, onClose }: DialogProps): ReactNode {
  const [reason, setReason] = useState("");
  const queries = useQueryClient();
  const id = approval.run.execution_id;
  const body = { signal: verdict, reason, step: approval.key };
  const decide = useMutation({
    mutationFn: () => call("POST /api/executions/{execution_id}/signal", { path: { execution_id: id }, body }),
    onSuccess: (answer) => {
      onClose();
      void queries.invalidateQueries();
      if (answer.accepted)
        toast({ kind: "done", text: `${approval.run.name}: ${verdict === "APPROVE" ? "approved" : "rejected"}` });
      else toast({ kind: "failed", text: "Already decided", detail: answer.message });
    },
  });
  const word = verdict === "APPROVE" ? "approve" : "reject";
  const step = approval.key ? ["--step", approval.key] : [];
  const form: ActionForm = {
    cli: [word, id, ...step, ...(reason ? ["--reason", reason] : [])],
    route: "POST /api/executions/{execution_id}/signal",
    path: { execution_id: id },
    body,
    python: `client.signal(${pythonText(id)}, SignalRequest(${pythonText(verdict)}, reason=${pythonText(reason)}, step=${pythonText(approval.key)}))`,
  };
  return (
    <Dialog
      title={verdict === "APPROVE" ? `Approve ${approval.run.name}?` : `Reject ${approval.run.name}?`}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button
            kind={verdict === "APPROVE" ? "main" : "danger"}
            disabled={decide.isPending || (verdict === "REJECT" && !reason.trim())}
            onClick={() => decide.mutate()}
          >
            {verdict === "APPROVE" ? "Approve" : "Reject"}
          </Button>
        </>
      }
    >
      {approval.prompt && <p>{approval.prompt}</p>}
      <Field
        label={verdict === "APPROVE" ? "Reason (optional)" : "Reason"}
        autoFocus
        value={reason}
        onChange={(event) => setReason(event.target.value)}
        hint="Recorded in the run's log with your name."
      />
      {decide.isError && <Alert error={decide.error} />}
      <Shown actions={{ decide: form }} />
    </Dialog>
  );
}
