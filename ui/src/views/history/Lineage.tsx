import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { lineageQuery, traceQuery } from "../../api/queries.ts";
import type { TraceNode } from "../../api/types.ts";
import { shortText } from "../../lib/diff.ts";
import { countText } from "../../lib/numbers.ts";
import { Alert } from "../../parts/Alert.tsx";
import { Button } from "../../parts/Button.tsx";
import { CopyAs } from "../../parts/CopyAs.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { Field } from "../../parts/Field.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import { useRunView } from "../run/context.ts";
import { datasetsOf } from "./datasets.ts";
import styles from "./History.module.css";

/** Where values came from, and which data the run read and wrote. */
export function Lineage(): ReactNode {
  const { id, run, selection } = useRunView();
  return (
    <div className={styles.scroll} tabIndex={0} role="group" aria-label="Lineage">
      <Trace key={selection.value} id={id} value={selection.value ?? ""} />
      <Datasets id={id} path={run.path} />
    </div>
  );
}

function Trace({ id, value }: { id: string; value: string }): ReactNode {
  const { select } = useRunView();
  const [typed, setTyped] = useState(value || "result");
  const trace = useQuery({ ...traceQuery(id, value), enabled: value !== "" });
  return (
    <section className={styles.part} aria-label="Trace a value">
      <h3>Trace a value</h3>
      <form
        className={styles.line}
        onSubmit={(event) => {
          event.preventDefault();
          select({ value: typed.trim() || undefined });
        }}
      >
        <div className={styles.grow}>
          <Field
            label="Value"
            value={typed}
            onChange={(event) => setTyped(event.target.value)}
            hint="A path such as result.total, ctx.count, workload.day or fetch.data (a step)"
          />
        </div>
        <Button type="submit">Trace</Button>
        <CopyAs
          actions={{
            trace: {
              cli: ["trace", id, "--value", value || typed],
              route: "GET /api/executions/{execution_id}/trace",
              path: { execution_id: id },
              query: { value: value || typed },
              python: `client.trace("${id}", ${JSON.stringify(value || typed)})`,
            },
          }}
        />
      </form>
      {trace.isError ? (
        <Alert error={trace.error} />
      ) : trace.data ? (
        <>
          <ul className={styles.tree} aria-label={`Where ${value} comes from`}>
            <Node node={trace.data.node} run={id} value={value} />
          </ul>
          {trace.data.is_cut && <p className="quiet small">The trace was cut off: there are too many sources.</p>}
        </>
      ) : (
        value && <Skeleton lines={4} />
      )}
    </section>
  );
}

const WHAT: Record<string, string> = {
  default: "playbook's default",
  constant: "written in the playbook",
  keychain: "secret",
  run: "engine",
  item: "loop item",
};

/** Sources of a value that are drawn at first: a loop has one for each of its items. */
const MOST = 50;

function Node({ node, run, value }: { node: TraceNode; run: string; value: string }): ReactNode {
  const id = node.execution_id || run;
  const item = node.item?.join(".") ?? "";
  const sources = node.sources ?? [];
  const [most, setMost] = useState(MOST);
  const place = { ...(node.step ? { step: node.step } : {}), ...(item ? { item } : {}) };
  const [, file = "", line = ""] = /^(?:(.*):)?(\d+):\d+$/.exec(node.source ?? "") ?? [];
  const facts = Object.entries(node.origin ?? {}).filter(([name]) => name !== "execution_id" && name !== "kept_from");
  const child = node.origin?.execution_id;
  const keptFrom = node.origin?.kept_from;
  return (
    <li>
      <div className={styles.node}>
        <span className={`${styles.what} ${sources.length || node.is_repeated ? "" : styles.end}`}>
          {WHAT[node.what] ?? node.what}
        </span>
        <b className="mono">{node.name}</b>
        {item && <span className="quiet small">item {item}</span>}
        {node.value !== undefined && node.value !== null && (
          <span className={styles.value}>{shortText(node.value)}</span>
        )}
        {node.kind && <span className="quiet small">{node.kind}</span>}
        {node.seq ? (
          <Link
            to="/runs/$id"
            params={{ id }}
            search={{ ...place, seq: node.seq, ...(id === run ? { tab: "lineage" as const, value } : {}) }}
          >
            event {countText(node.seq)}
          </Link>
        ) : null}
        {line && (
          <Link to="/runs/$id" params={{ id }} search={{ ...place, tab: "source", line: Number(line) }}>
            {file ? `${file}:${line}` : `line ${line}`}
          </Link>
        )}
        {typeof child === "string" && child && (
          <Link to="/runs/$id" params={{ id: child }}>
            run {child}
          </Link>
        )}
        {typeof keptFrom === "string" && keptFrom && (
          <Link to="/runs/$id" params={{ id: keptFrom }} search={{ tab: "lineage", value }}>
            kept from run {keptFrom}
          </Link>
        )}
        {facts.length > 0 && (
          <span className="mono small">
            {facts.map(([name, one]) => `${name}: ${shortText(one, 200)}`).join(" · ")}
          </span>
        )}
        {node.template && <code className={styles.template}>{node.template}</code>}
        {node.is_repeated && <span className="quiet small">sources listed above</span>}
      </div>
      {sources.length > 0 && (
        <ul>
          {sources.slice(0, most).map((source) => (
            <Node
              key={`${source.what} ${source.name} ${source.seq} ${source.item}`}
              node={source}
              run={run}
              value={value}
            />
          ))}
          {sources.length > most && (
            <li>
              <Button kind="quiet" onClick={() => setMost(most + 10 * MOST)}>
                … {countText(sources.length - most)} more
              </Button>
            </li>
          )}
        </ul>
      )}
    </li>
  );
}

function Datasets({ id, path }: { id: string; path: string }): ReactNode {
  const lineage = useQuery(lineageQuery(id));
  const found = lineage.data ? datasetsOf(lineage.data.events, path) : [];
  return (
    <section className={styles.part} aria-label="Datasets read and written">
      <div className={styles.line}>
        <h3>Datasets read and written</h3>
        <CopyAs
          actions={{
            lineage: {
              cli: ["lineage", id],
              route: "GET /api/executions/{execution_id}/lineage",
              path: { execution_id: id },
              python: `client.lineage("${id}")`,
            },
          }}
        />
      </div>
      {lineage.isError ? (
        <Trouble what="The lineage" error={lineage.error} />
      ) : !lineage.data ? (
        <Skeleton lines={2} />
      ) : found.length === 0 ? (
        <Empty title="No datasets">
          Tables, files, objects and addresses of its SQL, transfer, object and http tasks are listed here.
        </Empty>
      ) : (
        <table className={styles.table}>
          <caption className="hidden-visually">Datasets read and written</caption>
          <thead>
            <tr>
              <th scope="col">Dataset</th>
              <th scope="col">Task</th>
              <th scope="col">Size</th>
            </tr>
          </thead>
          <tbody>
            {found.map((one) => (
              <tr key={`${one.way} ${one.namespace} ${one.name} ${one.step} ${one.task}`}>
                <td>
                  {one.way === "read" ? "← read" : "→ wrote"} <b>{one.name}</b>{" "}
                  <span className="quiet">{one.namespace}</span>
                  {one.columns.length > 0 && (
                    <ul className="quiet">
                      {one.columns.map((column) => (
                        <li key={column}>{column}</li>
                      ))}
                    </ul>
                  )}
                </td>
                <td>
                  <Link to="/runs/$id" params={{ id }} search={{ step: one.step, tab: "lineage" }}>
                    {one.step}
                  </Link>{" "}
                  <span className="quiet">{one.task}</span>
                </td>
                <td>{one.amount}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
