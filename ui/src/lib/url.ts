/** The address is the state: what a view shows can be sent to somebody else, and reloading changes nothing. */

/** A search parameter that is one of some words, else undefined. */
export function oneOf<T extends string>(raw: unknown, words: readonly T[]): T | undefined {
  return words.find((word) => word === raw);
}

/** A list of such words: `a,b`, or the parameter several times. */
export function someOf<T extends string>(raw: unknown, words: readonly T[]): T[] | undefined {
  const given = Array.isArray(raw) ? raw.map(String) : typeof raw === "string" ? raw.split(",") : [];
  const found = words.filter((word) => given.includes(word));
  return found.length ? found : undefined;
}

export function textOf(raw: unknown, longest = 500): string | undefined {
  // A text of digits is parsed as a number on its way here.
  const text = typeof raw === "string" ? raw : typeof raw === "number" ? String(raw) : "";
  return text ? text.slice(0, longest) : undefined;
}

export function numberOf(raw: unknown, least = 0): number | undefined {
  const value = typeof raw === "number" ? raw : typeof raw === "string" && raw ? Number(raw) : Number.NaN;
  return Number.isSafeInteger(value) && value >= least ? value : undefined;
}

export function flagOf(raw: unknown): true | undefined {
  return raw === true || raw === "true" || raw === 1 || raw === "1" ? true : undefined;
}

/** Search parameters, none of which must be there. */
export type Search<T> = { [K in keyof T]?: T[K] | undefined };

/** What of an address a view understands; what it does not is left out. */
export function understood<T extends object>(found: T): Search<T> {
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined)) as Search<T>;
}

/** Plain `a=1&b=x,y`, in the place of JSON: an address that people can read and write. */
export function parseSearch(search: string): Record<string, unknown> {
  return Object.fromEntries(new URLSearchParams(search));
}

export function stringifySearch(search: Record<string, unknown>): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(search)) {
    if (value === undefined || value === null || value === "" || value === false) continue;
    params.set(name, Array.isArray(value) ? value.join(",") : String(value));
  }
  const text = params.toString().replaceAll("%2C", ",").replaceAll("%2F", "/").replaceAll("%3A", ":");
  return text ? `?${text}` : "";
}
