import { useQuery } from "@tanstack/react-query";
import { useRouter } from "@tanstack/react-router";
import { Keyboard, ListTree, Moon, Terminal } from "lucide-react";
import { type ReactNode, useEffect, useId, useRef, useState } from "react";
import { runsQuery } from "../api/queries.ts";
import { type Command, fits, useAllCommands } from "../lib/commands.ts";
import { stateOfRun } from "../lib/states.ts";
import { Kbd } from "../parts/Kbd.tsx";
import { StateGlyph } from "../parts/State.tsx";
import styles from "./Palette.module.css";
import { PLACES } from "./places.ts";
import { isDark, setTheme } from "./theme.ts";

interface Entry extends Command {
  icon: ReactNode;
}

const MOST = 40;

/** Everything by its name: places, actions of the page, runs. */
export function Palette({ onClose, onKeys }: { onClose: () => void; onKeys: () => void }): ReactNode {
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const dialog = useRef<HTMLDialogElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const id = useId();
  useEffect(() => {
    const opened = dialog.current;
    opened?.showModal();
    return () => opened?.close();
  }, []);
  const entries = useEntries(typed, onKeys);
  const current = Math.min(at, entries.length - 1);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another entry is current
  useEffect(() => {
    list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [current]);

  const choose = (entry: Entry | undefined): void => {
    if (!entry) return;
    onClose();
    entry.run();
  };
  const onKeyDown = (event: React.KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setAt((current + step + entries.length) % Math.max(entries.length, 1));
    } else if (event.key === "Enter") {
      event.preventDefault();
      choose(entries[current]);
    }
  };
  return (
    <dialog
      ref={dialog}
      className={styles.palette}
      aria-label="Command palette"
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onPointerDown={(event) => {
        if (event.target === dialog.current) onClose();
      }}
    >
      <input
        className={styles.input}
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls={id}
        aria-activedescendant={entries[current] ? `${id}-${current}` : undefined}
        aria-label="Search pages, actions and runs"
        placeholder="Search pages, actions and runs"
        value={typed}
        autoComplete="off"
        spellCheck={false}
        onChange={(event) => {
          setTyped(event.target.value);
          setAt(0);
        }}
        onKeyDown={onKeyDown}
      />
      <div id={id} role="listbox" aria-label="Results" className={styles.list} ref={list}>
        {entries.map((entry, index) => (
          <div key={entry.id}>
            {entry.group !== entries[index - 1]?.group && (
              <div className={styles.group} role="presentation">
                {entry.group}
              </div>
            )}
            {/* biome-ignore lint/a11y/useKeyWithClickEvents: the field above has the keys */}
            <div
              id={`${id}-${index}`}
              role="option"
              aria-selected={index === current}
              className={styles.entry}
              onClick={() => choose(entry)}
              onPointerMove={() => setAt(index)}
            >
              {entry.icon}
              <span className="cut">{entry.text}</span>
              {entry.hint && <span className={`${styles.hint} quiet small cut`}>{entry.hint}</span>}
              {entry.keys && <Kbd keys={entry.keys} />}
            </div>
          </div>
        ))}
        {entries.length === 0 && <p className={`${styles.none} quiet`}>No results.</p>}
      </div>
    </dialog>
  );
}

function useEntries(typed: string, onKeys: () => void): Entry[] {
  const commands = useAllCommands();
  const router = useRouter();
  const [wanted, setWanted] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setWanted(typed.trim()), 150);
    return () => clearTimeout(timer);
  }, [typed]);
  const found = useQuery({ ...runsQuery({ q: wanted, limit: 8 }), enabled: wanted.length > 1 });
  const own: Entry[] = [
    ...commands.map((one) => ({ ...one, icon: <Terminal size={14} /> })),
    ...PLACES.map(({ to, text, icon: Icon, key }) => ({
      id: `go ${to}`,
      text,
      group: "Go to",
      keys: `g ${key}`,
      icon: <Icon size={14} />,
      run: () => void router.navigate({ to }),
    })),
    {
      id: "theme",
      text: isDark() ? "Light theme" : "Dark theme",
      group: "Page",
      icon: <Moon size={14} />,
      run: () => setTheme(isDark() ? "light" : "dark"),
    },
    { id: "keys", text: "Keyboard shortcuts", group: "Page", keys: "?", icon: <Keyboard size={14} />, run: onKeys },
  ];
  const fitting = own
    .map((entry) => ({ entry, score: fits(`${entry.text} ${entry.hint ?? ""}`, typed) }))
    .filter(({ score }) => score > 0);
  if (typed.trim()) fitting.sort((a, b) => b.score - a.score);
  const groups = [...new Set(fitting.map(({ entry }) => entry.group))];
  const sorted = groups.flatMap((group) =>
    fitting.filter(({ entry }) => entry.group === group).map(({ entry }) => entry),
  );
  const runs: Entry[] = (typed.trim().length > 1 ? (found.data?.executions ?? []) : []).map((run) => ({
    id: `run ${run.execution_id}`,
    text: run.name,
    hint: `${run.execution_id} · ${stateOfRun(run).text}`,
    group: "Runs",
    icon: <StateGlyph state={stateOfRun(run).state} />,
    run: () => void router.navigate({ to: "/runs/$id", params: { id: run.execution_id } }),
  }));
  const search: Entry[] = typed.trim()
    ? [
        {
          id: "search",
          text: `Search runs for “${typed.trim()}”`,
          group: "Runs",
          icon: <ListTree size={14} />,
          run: () => void router.navigate({ to: "/runs", search: { q: typed.trim() } }),
        },
      ]
    : [];
  return [...sorted, ...runs, ...search].slice(0, MOST);
}
