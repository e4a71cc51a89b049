import { type ReactNode, useState } from "react";
import { countText } from "../lib/numbers.ts";
import styles from "./Json.module.css";

/** Members of a list or an object that are shown at once, and characters of a text. */
const MOST = 100;
const LONGEST = 400;
/** Deeper than this nothing is opened at once: each level is a press. */
const OPEN = 2;

interface Asking {
  /** what the value is called: `ctx` */
  path: string;
  ask: (path: string) => void;
}

interface Props {
  value: unknown;
  label: string;
  /** each value gets a button that asks where it came from */
  origin?: Asking;
}

/** Data of any size and depth: only what is open is in the page. */
export function Json({ value, label, origin }: Props): ReactNode {
  return (
    <div className={styles.json} role="group" aria-label={label} tabIndex={0}>
      <Value value={value} depth={0} origin={origin} />
    </div>
  );
}

interface ValueProps {
  value: unknown;
  depth: number;
  origin: Asking | undefined;
}

function Value({ value, depth, origin }: ValueProps): ReactNode {
  if (typeof value === "string") return <Text text={value} />;
  if (value === null || typeof value !== "object") return <span className={styles.plain}>{String(value)}</span>;
  const entries: [string, unknown][] = Array.isArray(value)
    ? value.map((one, index) => [String(index), one])
    : Object.entries(value);
  return <Members entries={entries} list={Array.isArray(value)} depth={depth} origin={origin} />;
}

interface MembersProps {
  entries: [string, unknown][];
  list: boolean;
  depth: number;
  origin: Asking | undefined;
}

function Members({ entries, list, depth, origin }: MembersProps): ReactNode {
  const [open, setOpen] = useState(depth < OPEN && entries.length <= MOST);
  const [most, setMost] = useState(MOST);
  const [before, after] = list ? ["[", "]"] : ["{", "}"];
  if (!entries.length) return <span className="quiet">{before + after}</span>;
  return (
    <>
      <button type="button" className={styles.fold} aria-expanded={open} onClick={() => setOpen(!open)}>
        {open ? "▾" : "▸"} {before}
        {!open && ` ${countText(entries.length)} ${after}`}
      </button>
      {open && (
        <ul className={styles.members}>
          {entries.slice(0, most).map(([name, one]) => {
            const path = origin && pathOf(origin.path, name, list);
            return (
              <li key={name}>
                <span className={styles.key}>{name}</span>
                <span className="quiet">: </span>
                <Value value={one} depth={depth + 1} origin={path ? { ...origin, path } : undefined} />
                {path && <AskButton path={path} ask={origin.ask} />}
              </li>
            );
          })}
          {entries.length > most && (
            <li>
              <button type="button" className={styles.fold} onClick={() => setMost(most + 10 * MOST)}>
                … {countText(entries.length - most)} more
              </button>
            </li>
          )}
        </ul>
      )}
    </>
  );
}

/** A part of a value, as `arclog trace --value` names it; '' for a key that has no such name. */
function pathOf(path: string, name: string, list: boolean): string {
  if (list) return `${path}[${name}]`;
  return /^[A-Za-z_][\w-]*$/.test(name) ? `${path}.${name}` : "";
}

export function AskButton({ path, ask }: Asking): ReactNode {
  const label = `Where does ${path} come from?`;
  return (
    <button type="button" className={styles.ask} aria-label={label} title={label} onClick={() => ask(path)}>
      ⤶
    </button>
  );
}

function Text({ text }: { text: string }): ReactNode {
  const [whole, setWhole] = useState(false);
  const shown = whole || text.length <= LONGEST ? text : text.slice(0, LONGEST);
  return (
    <>
      {/* Its own direction: text from right to left does not turn what stands around it. */}
      <bdi className={styles.text}>“{visible(shown)}”</bdi>
      {shown.length < text.length && (
        <button type="button" className={styles.fold} onClick={() => setWhole(true)}>
          … {countText(text.length - shown.length)} more characters
        </button>
      )}
    </>
  );
}

/** Control characters as pictures of themselves, and those that turn the direction of a text written out. */
function visible(text: string): string {
  return (
    text
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these are the ones that are meant
      .replace(/[\u0000-\u0008\u000b-\u001f]/g, (one) => String.fromCharCode(0x2400 + one.charCodeAt(0)))
      .replace(/[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (one) => `\\u${one.charCodeAt(0).toString(16)}`)
  );
}
