/** `a.b=1` on lines of their own, as `--set` and `--map` of the command line take them. */

export interface Assigned<T> {
  values: Record<string, T>;
  /** the first line that cannot be taken, and why; '' for none */
  wrong: string;
}

function pairsOf(text: string): [line: string, name: string, value: string][] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean)
    .map((line) => {
      const at = line.indexOf("=");
      return [line, at < 0 ? "" : line.slice(0, at).trim(), at < 0 ? "" : line.slice(at + 1).trim()];
    });
}

/** The lines as arguments, each after a flag. */
export function flagsOf(flag: string, text: string): string[] {
  return pairsOf(text).flatMap(([, name, value]) => [flag, `${name}=${value}`]);
}

/** `PATH=VALUE`: nested where the path has dots; a value is JSON, or else text. */
export function workloadOf(text: string): Assigned<unknown> {
  const values: Record<string, unknown> = {};
  for (const [line, path, raw] of pairsOf(text)) {
    const names = path.split(".");
    if (names.some((name) => !name)) return { values: {}, wrong: `"${line}" is not PATH=VALUE, as in limit=100` };
    let place = values;
    for (const name of names.slice(0, -1)) {
      if (!Object.hasOwn(place, name)) Object.defineProperty(place, name, own({}));
      const next = place[name];
      if (typeof next !== "object" || next === null || Array.isArray(next))
        return { values: {}, wrong: `"${line}" is inside a value that is set as a whole` };
      place = next as Record<string, unknown>;
    }
    const last = names.at(-1) ?? "";
    if (Object.hasOwn(place, last)) return { values: {}, wrong: `${path} is set twice` };
    Object.defineProperty(place, last, own(parsed(raw)));
  }
  return { values, wrong: "" };
}

/** `OLD=NEW`: steps that have another name. */
export function renamedOf(text: string): Assigned<string> {
  const values: Record<string, string> = {};
  for (const [line, old, now] of pairsOf(text)) {
    if (!old || !now) return { values: {}, wrong: `"${line}" is not OLD=NEW, as in fetch=load` };
    Object.defineProperty(values, old, own(now));
  }
  return { values, wrong: "" };
}

/** A field like any other, whatever its name is. */
function own(value: unknown): PropertyDescriptor {
  return { value, enumerable: true, configurable: true, writable: true };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
