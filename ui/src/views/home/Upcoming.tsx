import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { upcomingQuery } from "../../api/queries.ts";
import { clockText, dayText, millis } from "../../lib/time.ts";
import { Panel } from "../../parts/Panel.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { Time } from "../../parts/Time.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import styles from "./Upcoming.module.css";

const SHOWN = 8;

export function Upcoming(): ReactNode {
  const next = useQuery(upcomingQuery(SHOWN));
  const schedules = next.data?.schedules;
  return (
    <Panel title="Next scheduled runs">
      {next.isError && !schedules ? (
        <Trouble what="The list of schedules" error={next.error} retry={() => void next.refetch()} />
      ) : !schedules ? (
        <Skeleton lines={3} />
      ) : schedules.length === 0 ? (
        <p className={styles.none}>
          No schedules. Add one with <code>arclog schedule add</code>.
        </p>
      ) : (
        <ul className={styles.list}>
          {schedules.map((one) => (
            <li key={one.name} className={styles.item}>
              <span className={styles.what}>
                <Link to="/schedules" className="cut">
                  {one.name}
                </Link>
                <span className="quiet small cut">{one.path}</span>
              </span>
              <span className={styles.clock}>{one.next_due ? momentText(one.next_due) : ""}</span>
              <span className={`${styles.left} quiet`}>
                <Time at={one.next_due} />
              </span>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function momentText(at: string): string {
  const moment = millis(at);
  const isToday = new Date(moment).toDateString() === new Date().toDateString();
  return isToday ? clockText(moment) : `${dayText(moment)} ${clockText(moment)}`;
}
