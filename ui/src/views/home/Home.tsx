import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { Rocket } from "lucide-react";
import type { ReactNode } from "react";
import { runsQuery } from "../../api/queries.ts";
import { useCrumbs } from "../../app/crumbs.ts";
import { Empty } from "../../parts/Empty.tsx";
import { Activity } from "./Activity.tsx";
import { Attention } from "./Attention.tsx";
import styles from "./Home.module.css";
import { Running } from "./Running.tsx";
import { Upcoming } from "./Upcoming.tsx";

const route = getRouteApi("/");

/** What needs somebody first, then what runs, how it went lately, and what comes next. */
export function Home(): ReactNode {
  useCrumbs([{ text: "Home" }]);
  const { span = "24h" } = route.useSearch();
  const any = useQuery(runsQuery({ limit: 1 }));
  const isNew = any.data?.executions.length === 0;
  return (
    <div className={styles.home}>
      <h1 className="hidden-visually">Home</h1>
      {isNew ? (
        <Empty
          title="No runs yet"
          icon={<Rocket size={28} />}
          command={`arclog run examples/hello.yaml --server ${window.location.origin}`}
        >
          Runs appear here once there are any. Start one from a playbook or from the command line:
        </Empty>
      ) : (
        <div className={styles.columns}>
          <div className={styles.column}>
            <Attention />
            <Running />
          </div>
          <div className={styles.column}>
            <Activity span={span} />
            <Upcoming />
          </div>
        </div>
      )}
    </div>
  );
}
