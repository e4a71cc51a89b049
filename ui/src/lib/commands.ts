/** What the command palette offers: views add their actions while they are shown. */
import { useEffect, useRef } from "react";
import { Store, useStore } from "./store.ts";

export interface Command {
  id: string;
  text: string;
  group: string;
  /** shown at the end of the line */
  hint?: string;
  keys?: string;
  run: () => void;
}

const lists = new Store<readonly { commands: Command[] }[]>([]);

export function useAllCommands(): Command[] {
  return useStore(lists)
    .toReversed()
    .flatMap((list) => list.commands);
}

export function useCommands(commands: Command[]): void {
  const current = useRef(commands);
  current.current = commands;
  const names = JSON.stringify(commands.map(({ run: _run, ...rest }) => rest));
  useEffect(() => {
    const told = JSON.parse(names) as Omit<Command, "run">[];
    const list = { commands: told.map((one, index) => ({ ...one, run: () => current.current[index]?.run() })) };
    lists.set([...lists.get(), list]);
    return () => lists.set(lists.get().filter((one) => one !== list));
  }, [names]);
}

/** How well a text fits what was typed: every letter in order; 0 when it does not. Beginnings of words count more. */
export function fits(text: string, typed: string): number {
  const where = text.toLowerCase();
  const wanted = typed.toLowerCase().trim();
  if (!wanted) return 1;
  const whole = where.indexOf(wanted);
  if (whole >= 0) return 100 - whole + (whole === 0 || /\W/.test(where[whole - 1] ?? " ") ? 50 : 0);
  let at = -1;
  let score = 10;
  for (const letter of wanted.replaceAll(" ", "")) {
    const next = where.indexOf(letter, at + 1);
    if (next < 0) return 0;
    score -= next - at > 1 ? 1 : 0;
    at = next;
  }
  return Math.max(score, 1);
}
