import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { replayQuery } from "../../api/queries.ts";
import type { ReplayCheck, ReplayDifference } from "../../api/types.ts";
import { countText, plural } from "../../lib/numbers.ts";
import { Alert } from "../../parts/Alert.tsx";
import { Banner } from "../../parts/Banner.tsx";
import { Button } from "../../parts/Button.tsx";
import { CopyAs } from "../../parts/CopyAs.tsx";
import { Json } from "../../parts/Json.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import styles from "./History.module.css";

/** Decide again whatever was decided in a run's log, and show the first difference. */
export function Replay({ id }: { id: string }): ReactNode {
  const [isAsked, setAsked] = useState(false);
  const replay = useQuery({ ...replayQuery(id), enabled: isAsked });
  const check = (): void => (isAsked ? void replay.refetch() : setAsked(true));
  return (
    <section className={styles.part} aria-label="Replay">
      <h3>Replay</h3>
      <p className="quiet small">
        Checks every recorded decision against this version of arclog. Nothing is executed or written.
      </p>
      <div className={styles.line}>
        <Button disabled={replay.isFetching} onClick={check}>
          {replay.isFetching ? "Replaying …" : replay.data ? "Replay again" : "Replay"}
        </Button>
        <CopyAs
          actions={{
            replay: {
              cli: ["replay", id],
              route: "GET /api/executions/{execution_id}/replay",
              path: { execution_id: id },
              python: `client.replay("${id}")`,
            },
          }}
        />
      </div>
      {replay.isError ? (
        <Trouble what="The replay" error={replay.error} />
      ) : replay.data ? (
        <Verdict id={id} check={replay.data} />
      ) : (
        replay.isFetching && <Skeleton lines={2} />
      )}
    </section>
  );
}

function Verdict({ id, check }: { id: string; check: ReplayCheck }): ReactNode {
  const checked = `${plural(check.events, "event")} and ${plural(check.decisions, "decision")} checked`;
  const folded = check.folded
    ? `, ${plural(check.folded, "event")} taken over from another run or producer and not decided again`
    : "";
  if (check.ok || !check.difference) {
    return (
      <Banner state="done">
        <p>The log replays without differences.</p>
        <p className="quiet small">
          {checked}
          {folded}.
        </p>
      </Banner>
    );
  }
  return (
    <>
      <Banner state="failed">
        <p>
          First difference at{" "}
          <Link to="/runs/$id" params={{ id }} search={{ seq: check.difference.seq, tab: "history" }}>
            event {countText(check.difference.seq)}
          </Link>
          : this version of arclog decides otherwise.
        </p>
        <p className="quiet small">
          {checked}
          {folded}.
        </p>
      </Banner>
      <Difference difference={check.difference} />
    </>
  );
}

function Difference({ difference }: { difference: ReplayDifference }): ReactNode {
  return (
    <>
      {difference.problem && <Alert error={difference.problem} />}
      {difference.fields.length > 0 && (
        <p className="small">
          Fields that differ: <span className="mono">{difference.fields.join(", ")}</span>
        </p>
      )}
      <div className={styles.sides}>
        <section>
          <h4>Recorded</h4>
          {difference.recorded ? (
            <Json value={difference.recorded} label="Recorded event" />
          ) : (
            <p className="quiet">No event</p>
          )}
        </section>
        <section>
          <h4>Decided now</h4>
          {difference.decided ? (
            <Json value={difference.decided} label="Event decided now" />
          ) : (
            <p className="quiet">No event</p>
          )}
        </section>
      </div>
    </>
  );
}
