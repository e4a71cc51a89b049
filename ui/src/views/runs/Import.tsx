import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Upload } from "lucide-react";
import { type ReactNode, useId, useState } from "react";
import { call } from "../../api/client.ts";
import { useDenied } from "../../api/session.ts";
import { toast } from "../../app/toasts.ts";
import { useCommands } from "../../lib/commands.ts";
import { plural } from "../../lib/numbers.ts";
import { Alert } from "../../parts/Alert.tsx";
import { Button } from "../../parts/Button.tsx";
import { Shown } from "../../parts/CopyAs.tsx";
import { Dialog } from "../../parts/Dialog.tsx";
import styles from "./Runs.module.css";

/** Take in a run that was exported here or elsewhere. */
export function Import(): ReactNode {
  const [isOpen, setOpen] = useState(false);
  const denied = useDenied("POST /api/import");
  useCommands(denied ? [] : [{ id: "import", text: "Import run", group: "Runs", run: () => setOpen(true) }]);
  return (
    <>
      <Button icon={<Upload size={14} />} denied={denied} onClick={() => setOpen(true)}>
        Import
      </Button>
      {isOpen && <ImportDialog onClose={() => setOpen(false)} />}
    </>
  );
}

function ImportDialog({ onClose }: { onClose: () => void }): ReactNode {
  const [file, setFile] = useState<File | null>(null);
  const field = useId();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const load = useMutation({
    mutationFn: (chosen: File) => call("POST /api/import", { file: chosen }),
    onSuccess: (found) => {
      onClose();
      void queries.invalidateQueries();
      toast({
        kind: "done",
        text: found.created ? `Imported a run with ${plural(found.events, "event")}` : "This run was already imported",
        detail: found.missing.length ? `Results missing from the export: ${found.missing.join(", ")}` : "",
      });
      void navigate({ to: "/runs/$id", params: { id: found.execution_id } });
    },
  });
  const name = file?.name ?? "run.arclog";
  return (
    <Dialog
      title="Import run"
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="main" disabled={!file || load.isPending} onClick={() => file && load.mutate(file)}>
            {load.isPending ? "Importing …" : "Import"}
          </Button>
        </>
      }
    >
      <p>An imported run keeps its ID and is read-only. You can inspect, replay, compare, simulate and fork it.</p>
      <label htmlFor={field}>Exported file</label>
      <input
        id={field}
        className={styles.file}
        type="file"
        accept=".arclog,.zip,application/zip"
        onChange={(event) => {
          load.reset(); // what was wrong with another file says nothing of this one
          setFile(event.target.files?.[0] ?? null);
        }}
      />
      {load.isError && <Alert error={load.error} />}
      <Shown
        actions={{
          import: {
            cli: ["import", name],
            route: "POST /api/import",
            upload: name,
            python: `client.import_run(open(${JSON.stringify(name)}, "rb"))`,
          },
        }}
      />
    </Dialog>
  );
}
