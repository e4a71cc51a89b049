import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { GitFork, ListRestart } from "lucide-react";
import { lazy, type ReactNode, Suspense, useMemo, useState } from "react";
import { originQuery } from "../../api/queries.ts";
import { useMe } from "../../api/session.ts";
import type { ListedRun } from "../../api/types.ts";
import { useCommands } from "../../lib/commands.ts";
import { countText, plural } from "../../lib/numbers.ts";
import { isOver } from "../../lib/states.ts";
import { Button } from "../../parts/Button.tsx";
import type { Selection } from "./context.ts";
import { type StepSpan, sharesOf } from "./spans.ts";

const ContinueDialog = lazy(async () => ({ default: (await import("./ContinueDialog.tsx")).ContinueDialog }));

/** Part of a run that a new one begins with. */
export type Kept = { failed: true } | { from: string } | { at: number };

export interface Way {
  id: string;
  text: string;
  icon: ReactNode;
  explains: string;
  kept: Kept;
}

/** New runs that keep what this one recorded: all but what failed, all before a step, all up to an event. */
function waysOf(run: ListedRun, selection: Selection): Way[] {
  const ways: Way[] = [];
  const { step, seq } = selection;
  if (run.state === "FAILED" || run.state === "CANCELLED" || (run.state === "COMPLETED" && run.warning)) {
    ways.push({
      id: "failed",
      text: run.state === "CANCELLED" ? "Retry unfinished" : "Retry failed",
      icon: <ListRestart size={14} />,
      explains:
        "A new run keeps everything that succeeded, down to single loop items, and runs the rest again. This run is not changed.",
      kept: { failed: true },
    });
  }
  if (step && isOver(run)) {
    ways.push({
      id: "from",
      text: `Retry from ${step}`,
      icon: <ListRestart size={14} />,
      explains: `A new run keeps everything before the latest run of ${step} and runs that step, and everything after it, again.`,
      kept: { from: step },
    });
  }
  if (seq !== undefined) {
    ways.push({
      id: "fork",
      text: `Fork after event ${countText(seq)}`,
      icon: <GitFork size={14} />,
      explains:
        "A new run continues from the state after this event. Work that was in progress resumes after its last finished task.",
      kept: { at: seq },
    });
  }
  return ways;
}

/** Start a new run from what a run has recorded. */
export function Continue({ run, selection }: { run: ListedRun; selection: Selection }): ReactNode {
  const [asked, setAsked] = useState<Way | null>(null);
  const reason = useMe()?.denied_signals.RETRY_RUN;
  const denied = reason ? `Not allowed: ${reason}.` : "";
  const ways = waysOf(run, selection);
  useCommands(
    denied
      ? []
      : ways.map((way) => ({
          id: way.id,
          text: `${way.text}: ${run.name}`,
          group: "This run",
          run: () => setAsked(way),
        })),
  );
  return (
    <>
      {ways.map((way) => (
        <Button key={way.id} icon={way.icon} denied={denied} onClick={() => setAsked(way)}>
          {way.text}
        </Button>
      ))}
      {asked && (
        <Suspense>
          <ContinueDialog run={run} way={asked} onClose={() => setAsked(null)} />
        </Suspense>
      )}
    </>
  );
}

/** Where a run comes from that began with the events of another one, and how much of it ran there. */
export function OriginFact({ id, steps }: { id: string; steps: readonly StepSpan[] }): ReactNode {
  const { data: origin, isPlaceholderData } = useQuery(originQuery(id));
  const shares = useMemo(() => sharesOf(steps, origin?.events ?? 0), [steps, origin]);
  if (!origin || isPlaceholderData) return null;
  return (
    <>
      <div>
        <dt>{origin.how === "fork" ? "Fork of" : "Retry of"}</dt>
        <dd>
          <Link to="/runs/$id" params={{ id: origin.execution_id }} search={{ seq: origin.seq }}>
            {origin.execution_id}
          </Link>{" "}
          <span className="quiet">{origin.events ? `after event ${countText(origin.seq)}` : "from the start"}</span>
        </dd>
      </div>
      {origin.events > 0 && (
        <>
          <div>
            <dt>Kept from it</dt>
            <dd>{shareText(shares.steps.kept, shares.items.kept)}</dd>
          </div>
          <div>
            <dt>Ran here</dt>
            <dd>{shareText(shares.steps.ran, shares.items.ran)}</dd>
          </div>
        </>
      )}
    </>
  );
}

/** "2 steps, 997 items" */
function shareText(steps: number, items: number): string {
  return [plural(steps, "step"), ...(items ? [plural(items, "item")] : [])].join(", ");
}
