/** Datasets out of OpenLineage events: one row for what each task read and wrote. */
import { countText } from "../../lib/numbers.ts";

interface Dataset {
  namespace: string;
  name: string;
  facets?: { columnLineage?: { fields?: Record<string, { inputFields?: { name: string; field: string }[] }> } };
  inputFacets?: { inputStatistics?: Statistics };
  outputFacets?: { outputStatistics?: Statistics };
}
interface Statistics {
  rowCount?: number;
  size?: number;
}
interface LineageEvent {
  job: { name: string };
  inputs: Dataset[];
  outputs: Dataset[];
}

export interface DatasetRow {
  way: "read" | "wrote";
  namespace: string;
  name: string;
  step: string;
  task: string;
  /** "12 rows", of all runs of the task together */
  amount: string;
  /** "total ← orders.price, orders.count" */
  columns: string[];
}

/** `path` is that of the playbook: a task's job is called `path.step.task`. */
export function datasetsOf(events: readonly object[], path: string): DatasetRow[] {
  const rows = new Map<string, DatasetRow & Required<Statistics>>();
  for (const event of events as LineageEvent[]) {
    const [step = "", task = ""] = event.job.name.startsWith(`${path}.`)
      ? event.job.name.slice(path.length + 1).split(".")
      : [];
    for (const [way, sets] of [
      ["read", event.inputs],
      ["wrote", event.outputs],
    ] as const) {
      for (const set of sets) {
        const key = JSON.stringify([way, set.namespace, set.name, step, task]);
        const row = rows.get(key) ?? {
          ...{ way, namespace: set.namespace, name: set.name, step, task, amount: "", rowCount: 0, size: 0 },
          columns: Object.entries(set.facets?.columnLineage?.fields ?? {}).map(
            ([column, { inputFields = [] }]) =>
              `${column} ← ${inputFields.map((one) => `${one.name}.${one.field}`).join(", ")}`,
          ),
        };
        const counted = set.inputFacets?.inputStatistics ?? set.outputFacets?.outputStatistics ?? {};
        row.rowCount += counted.rowCount ?? 0;
        row.size += counted.size ?? 0;
        row.amount = [
          row.rowCount ? `${countText(row.rowCount)} rows` : "",
          row.size ? `${countText(row.size)} bytes` : "",
        ]
          .filter(Boolean)
          .join(", ");
        rows.set(key, row);
      }
    }
  }
  return [...rows.values()];
}
