import { Download } from "lucide-react";
import type { ReactNode } from "react";
import { addressOf } from "../../api/client.ts";
import { CopyAs } from "../../parts/CopyAs.tsx";
import { useRunView } from "../run/context.ts";
import runStyles from "../run/Run.module.css";
import styles from "./History.module.css";
import { Replay } from "./Replay.tsx";
import { Simulate } from "./Simulate.tsx";

/** What can be done with a recorded run: check its log, try another playbook on it, take it elsewhere. */
export function History(): ReactNode {
  const { id, run } = useRunView();
  return (
    <div className={styles.scroll} tabIndex={0} role="group" aria-label="History">
      <Replay id={id} />
      <Simulate path={run.path} run={id} />
      <Export id={id} />
    </div>
  );
}

function Export({ id }: { id: string }): ReactNode {
  const path = { execution_id: id };
  return (
    <section className={styles.part} aria-label="Export">
      <h3>Export</h3>
      <p className="quiet small">
        One file with the log, plan, playbook and stored results, without secrets. Import it into any other server to
        inspect the run there.
      </p>
      <div className={styles.line}>
        <a
          className={runStyles.linkButton}
          href={addressOf("GET /api/executions/{execution_id}/export", path, undefined)}
          download={`${id}.arclog`}
        >
          <Download size={14} /> Export
        </a>
        <CopyAs
          actions={{
            export: {
              cli: ["export", id, "-o", "run.arclog"],
              route: "GET /api/executions/{execution_id}/export",
              path,
              output: "run.arclog",
              python: `open("run.arclog", "wb").write(b"".join(client.export("${id}")))`,
            },
          }}
        />
      </div>
    </section>
  );
}
