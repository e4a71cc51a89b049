/** Keyboard shortcuts: views register theirs while they are shown, `?` lists all of them. */
import { useEffect, useRef } from "react";
import { Store, useStore } from "./store.ts";

export interface Binding {
  /** "j", "g r" (one after the other), "mod+k" (⌘ or Ctrl), "Enter", "?" */
  keys: string;
  /** what it does, for the list */
  text: string;
  run: (event: KeyboardEvent) => void;
}

interface Group {
  name: string;
  bindings: Binding[];
}

const groups = new Store<readonly Group[]>([]);
const SEQUENCE_MS = 1200;
let prefix = "";
let prefixAt = 0;

/** The groups of shortcuts that are active now, the most general first. */
export function useKeyGroups(): readonly Group[] {
  return useStore(groups);
}

/** Register shortcuts while the component is shown. What was registered last goes before. */
export function useKeys(name: string, bindings: Binding[]): void {
  const current = useRef(bindings);
  current.current = bindings;
  const names = bindings.map((one) => `${one.keys}\t${one.text}`).join("\n");
  useEffect(() => {
    const group: Group = {
      name,
      bindings: names.split("\n").map((line, index) => {
        const [keys = "", text = ""] = line.split("\t");
        return { keys, text, run: (event) => current.current[index]?.run(event) };
      }),
    };
    groups.set([...groups.get(), group]);
    return () => groups.set(groups.get().filter((one) => one !== group));
  }, [name, names]);
}

function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target.closest(".cm-editor")) return true;
  if (target instanceof HTMLInputElement) return !["checkbox", "radio", "button", "range"].includes(target.type);
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}

function pressed(event: KeyboardEvent): string {
  return (
    (event.metaKey || event.ctrlKey ? "mod+" : "") + (event.key.length === 1 ? event.key.toLowerCase() : event.key)
  );
}

function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing || event.altKey) return;
  const key = pressed(event);
  const plain = !key.startsWith("mod+");
  // A dialog has the keyboard to itself, and so has a field; only ⌘K goes everywhere.
  if (plain && (isTyping(event.target) || document.querySelector("dialog[open]"))) return;
  // Enter and space belong to what has the focus.
  const focused = document.activeElement;
  if (
    (key === "Enter" || key === " ") &&
    focused instanceof HTMLElement &&
    focused.matches("a, button, summary, input")
  )
    return;
  const sequence = prefix && event.timeStamp - prefixAt < SEQUENCE_MS ? `${prefix} ${key}` : key;
  const all = groups
    .get()
    .toReversed()
    .flatMap((group) => group.bindings);
  const found = all.find((one) => one.keys === sequence) ?? all.find((one) => one.keys === key);
  prefix = "";
  if (found) {
    event.preventDefault();
    found.run(event);
  } else if (all.some((one) => one.keys.startsWith(`${key} `))) {
    prefix = key;
    prefixAt = event.timeStamp;
  }
}

/** Listen once, for the whole page. */
export function listenForKeys(): () => void {
  window.addEventListener("keydown", onKey);
  return () => window.removeEventListener("keydown", onKey);
}

const IS_MAC = typeof navigator !== "undefined" && /Mac|iP(hone|ad)/.test(navigator.platform);

/** The caps of a shortcut: ["⌘", "K"], ["g", "r"]. */
export function capsOf(keys: string): string[] {
  return keys.split(" ").flatMap((key) => {
    const [, bare = key] = /^mod\+(.+)$/.exec(key) ?? [];
    const cap = { Escape: "esc", Enter: "↵", " ": "space", ArrowUp: "↑", ArrowDown: "↓" }[bare] ?? bare;
    return key.startsWith("mod+") ? [IS_MAC ? "⌘" : "Ctrl", cap.toUpperCase()] : [cap];
  });
}
