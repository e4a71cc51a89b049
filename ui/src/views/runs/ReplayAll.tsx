import { History } from "lucide-react";
import { lazy, type ReactNode, Suspense, useState } from "react";
import type { RunsAsked } from "../../api/queries.ts";
import { useDenied } from "../../api/session.ts";
import { useCommands } from "../../lib/commands.ts";
import { Button } from "../../parts/Button.tsx";

const ReplayAllDialog = lazy(async () => ({ default: (await import("./ReplayAllDialog.tsx")).ReplayAllDialog }));

/** Check the logs of all runs of the list against this version of arclog. */
export function ReplayAll({ asked }: { asked: NonNullable<RunsAsked> }): ReactNode {
  const [isOpen, setOpen] = useState(false);
  const denied = useDenied("GET /api/executions/{execution_id}/replay");
  useCommands(denied ? [] : [{ id: "replay", text: "Replay listed runs", group: "Runs", run: () => setOpen(true) }]);
  return (
    <>
      <Button icon={<History size={14} />} denied={denied} onClick={() => setOpen(true)}>
        Replay
      </Button>
      {isOpen && (
        <Suspense>
          <ReplayAllDialog asked={asked} onClose={() => setOpen(false)} />
        </Suspense>
      )}
    </>
  );
}
