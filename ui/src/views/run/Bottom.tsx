import { X } from "lucide-react";
import { lazy, type ReactNode, Suspense, useEffect, useRef } from "react";
import { useNarrow } from "../../lib/narrow.ts";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { Children } from "./Children.tsx";
import { type Tab, useRunView } from "./context.ts";
import { Data } from "./Data.tsx";
import { Events } from "./Events.tsx";
import { Items } from "./Items.tsx";
import { Logs } from "./Logs.tsx";
import styles from "./Run.module.css";

const Source = lazy(async () => ({ default: (await import("./Source.tsx")).Source }));
const Lineage = lazy(async () => ({ default: (await import("../history/Lineage.tsx")).Lineage }));
const History = lazy(async () => ({ default: (await import("../history/History.tsx")).History }));

const TABS: [Tab, string][] = [
  ["events", "Events"],
  ["items", "Items"],
  ["logs", "Logs"],
  ["data", "Data"],
  ["source", "Source"],
  ["children", "Child runs"],
  ["lineage", "Lineage"],
  ["history", "History"],
];

/** The run in detail: one tab at a time, all about the same selection. */
export function Bottom({ loading }: { loading: boolean }): ReactNode {
  const { steps, plan, selection, select } = useRunView();
  const loops = steps.some((step) => step.items.size > 0);
  const calls = plan?.steps.some((step) => step.tasks.some((task) => task.kind === "playbook")) ?? false;
  const tabs = TABS.filter(([tab]) => (tab !== "items" || loops) && (tab !== "children" || calls));
  const wanted = selection.tab ?? "events";
  const tab = tabs.some(([one]) => one === wanted) ? wanted : "events";
  const bar = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const button = bar.current?.querySelector<HTMLElement>(`#tab-${tab}`);
    // The bar alone scrolls: the page stays where it is.
    if (bar.current && button)
      bar.current.scrollLeft = button.offsetLeft + button.offsetWidth - bar.current.clientWidth;
  }, [tab]);
  // On a phone the tabs are below the fold: a link to one leads there.
  const section = useRef<HTMLElement>(null);
  const isLinked = useRef(useNarrow() && selection.tab !== undefined);
  useEffect(() => {
    if (isLinked.current) section.current?.scrollIntoView();
  }, []);
  return (
    <section className={styles.detail} aria-label="Run details" ref={section}>
      <div className={styles.tabBar} ref={bar}>
        <div
          className={styles.tabs}
          role="tablist"
          aria-label="Sections"
          onKeyDown={(event) => {
            const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
            if (by === undefined) return;
            event.preventDefault();
            event.stopPropagation();
            const at = tabs.findIndex(([one]) => one === tab);
            const next = tabs[(at + by + tabs.length) % tabs.length];
            if (next) select({ tab: next[0] });
            const buttons = event.currentTarget.querySelectorAll<HTMLElement>("[role=tab]");
            buttons[(at + by + tabs.length) % tabs.length]?.focus();
          }}
        >
          {tabs.map(([one, text]) => (
            <button
              key={one}
              type="button"
              role="tab"
              id={`tab-${one}`}
              aria-selected={one === tab}
              aria-controls="run-detail"
              tabIndex={one === tab ? 0 : -1}
              onClick={() => select({ tab: one })}
            >
              {text}
            </button>
          ))}
        </div>
        {selection.step && (
          <span className={`${styles.about} quiet small`}>
            <b className="cut">{selection.step}</b>
            {selection.item && <> item {selection.item}</>}
            <button
              type="button"
              aria-label="clear"
              title="Show all steps"
              onClick={() => select({ step: undefined, run: undefined, item: undefined })}
            >
              <X size={14} />
            </button>
          </span>
        )}
      </div>
      <div className={styles.tabBody} role="tabpanel" id="run-detail" aria-labelledby={`tab-${tab}`}>
        {loading ? (
          <Skeleton lines={8} height={1.875} />
        ) : tab === "events" ? (
          <Events />
        ) : tab === "items" ? (
          <Items />
        ) : tab === "logs" ? (
          <Logs />
        ) : tab === "data" ? (
          <Data />
        ) : tab === "children" ? (
          <Children />
        ) : (
          <Suspense fallback={<Skeleton lines={8} height={1.25} />}>
            {tab === "source" ? <Source /> : tab === "lineage" ? <Lineage /> : <History />}
          </Suspense>
        )}
      </div>
    </section>
  );
}
