import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { FilePlus2, Play } from "lucide-react";
import { type ReactNode, useMemo, useState } from "react";
import { catalogQuery } from "../../api/queries.ts";
import { useDenied } from "../../api/session.ts";
import type { CatalogEntry } from "../../api/types.ts";
import { useCrumbs } from "../../app/crumbs.ts";
import { fits } from "../../lib/commands.ts";
import { countText } from "../../lib/numbers.ts";
import { Button } from "../../parts/Button.tsx";
import { CopyAs } from "../../parts/CopyAs.tsx";
import { Empty } from "../../parts/Empty.tsx";
import { SearchField } from "../../parts/Field.tsx";
import { RunBars } from "../../parts/RunBars.tsx";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { Time } from "../../parts/Time.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import { type Column, VirtualTable } from "../../parts/VirtualTable.tsx";
import styles from "./Playbooks.module.css";
import { RunForm } from "./RunForm.tsx";

const route = getRouteApi("/playbooks");

/** The catalog: each playbook with its last runs. */
export function Playbooks(): ReactNode {
  useCrumbs([{ text: "Playbooks" }]);
  const { q = "", archived = false } = route.useSearch();
  const navigate = route.useNavigate();
  const catalog = useQuery(catalogQuery("", archived));
  const [asked, setAsked] = useState<string | null>(null);
  const denied = useDenied("POST /api/executions");
  const rows = useMemo(
    () => (catalog.data?.playbooks ?? []).filter((one) => !q || fits(one.path, q) > 0),
    [catalog.data, q],
  );
  const columns = useMemo<Column<CatalogEntry>[]>(
    () => [
      {
        key: "path",
        title: "Playbook",
        width: "minmax(12rem, 2fr)",
        cell: (one) => (
          <Link to="/playbook/$" params={{ _splat: one.path }} className="cut">
            {one.path}
          </Link>
        ),
      },
      { key: "runs", title: "Last runs", width: "14rem", cell: (one) => <RunBars path={one.path} /> },
      { key: "version", title: "Version", width: "5rem", align: "end", cell: (one) => `v${one.version}` },
      { key: "at", title: "Registered", width: "8rem", cell: (one) => <Time at={one.registered_at} /> },
      {
        key: "run",
        title: <span className="hidden-visually">Run</span>,
        width: "6rem",
        cell: (one) => (
          <Button icon={<Play size={12} />} denied={denied} onClick={() => setAsked(one.path)}>
            Run
          </Button>
        ),
      },
    ],
    [denied],
  );
  return (
    <div className={styles.page}>
      <h1 className="hidden-visually">Playbooks</h1>
      <div className={styles.tools}>
        <SearchField
          label="Search playbooks"
          placeholder="Search playbooks"
          value={q}
          onChange={(value) =>
            void navigate({ search: (before) => ({ ...before, q: value || undefined }), replace: true })
          }
        />
        <label className={styles.check}>
          <input
            type="checkbox"
            checked={archived}
            onChange={(event) =>
              void navigate({ search: (before) => ({ ...before, archived: event.target.checked || undefined }) })
            }
          />
          Include archived
        </label>
        <span className="quiet small">{catalog.data && countText(rows.length)}</span>
        <div className={styles.end}>
          <CopyAs
            actions={{
              list: { cli: ["catalog", "list"], route: "GET /api/catalog", python: "client.catalog()" },
            }}
          />
          <Link to="/new-playbook" className={styles.linkButton}>
            <FilePlus2 size={14} /> New playbook
          </Link>
        </div>
      </div>
      {catalog.isError && !catalog.data ? (
        <Trouble what="The catalog" error={catalog.error} retry={() => void catalog.refetch()} />
      ) : (
        <VirtualTable
          label="Playbooks"
          columns={columns}
          rows={rows}
          keyOf={(one) => one.path}
          onOpen={(one) => void navigate({ to: "/playbook/$", params: { _splat: one.path } })}
          card={(one) => (
            <div className={styles.card}>
              <Link to="/playbook/$" params={{ _splat: one.path }} className="cut">
                {one.path}
              </Link>
              <RunBars path={one.path} />
              <Button icon={<Play size={12} />} denied={denied} onClick={() => setAsked(one.path)}>
                Run
              </Button>
            </div>
          )}
          empty={
            !catalog.data ? (
              <Skeleton lines={6} />
            ) : q ? (
              <Empty title="No matching playbooks" />
            ) : (
              <Empty
                title="No playbooks yet"
                command={`arclog catalog register examples/hello.yaml --server ${window.location.origin}`}
              >
                A registered playbook can be run by its path, scheduled, and called by others. Register a file, or write
                one here.
              </Empty>
            )
          }
        />
      )}
      {asked !== null && <RunForm path={asked} version={0} onClose={() => setAsked(null)} />}
    </div>
  );
}
