import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useEffect, useRef } from "react";
import { sourceQuery, whyQuery } from "../../api/queries.ts";
import { stepAtLine } from "../../lib/plan.ts";
import { Skeleton } from "../../parts/Skeleton.tsx";
import { Trouble } from "../../parts/Trouble.tsx";
import { useRunView } from "./context.ts";
import styles from "./Run.module.css";

/** The author's lines, with those of the selected step, and the one that failed. */
export function Source(): ReactNode {
  const { id, plan, selection, select } = useRunView();
  const source = useQuery(sourceQuery(id));
  const why = useQuery(whyQuery(id));
  const marked = useRef<HTMLLIElement>(null);
  const cause = why.data?.cause;
  const failed = cause?.execution_id === id ? cause.line : 0;
  const text = source.data ?? "";
  const target = selection.line ?? (selection.step && cause?.step === selection.step ? failed : 0);
  // biome-ignore lint/correctness/useExhaustiveDependencies: what is selected comes into sight, once there is text
  useEffect(() => {
    const line = marked.current;
    const list = line?.parentElement;
    // The list alone scrolls: the page stays where it is.
    if (line && list) list.scrollTop = line.offsetTop - list.offsetTop - list.clientHeight / 2;
  }, [text, selection.step, target]);
  if (source.isError && !text) return <Trouble what="The source" error={source.error} />;
  if (!text) return <Skeleton lines={10} height={1.25} />;
  const lines = text.split("\n");
  let scrolled = false;
  return (
    <ol className={styles.source} tabIndex={0} aria-label="Source of the playbook">
      {lines.map((line, index) => {
        const number = index + 1;
        const step = plan ? stepAtLine(plan, number) : undefined;
        const isOf = step !== undefined && step === selection.step;
        const goal = target ? number === target : isOf;
        const first = goal && !scrolled;
        if (first) scrolled = true;
        return (
          // biome-ignore lint/a11y/useKeyWithClickEvents: steps are selected by keyboard in the graph and the chart
          <li
            key={number}
            ref={first ? marked : undefined}
            data-selected={isOf}
            data-failed={number === failed}
            data-target={number === selection.line}
            onClick={() =>
              step &&
              !window.getSelection()?.toString() &&
              select({ step, run: undefined, item: undefined, line: undefined })
            }
          >
            {line || " "}
          </li>
        );
      })}
    </ol>
  );
}
