/** What differs between two pieces of data, by path. */

export interface Difference {
  path: string;
  before: unknown;
  after: unknown;
}

const MOST = 500;

export function differences(before: unknown, after: unknown): Difference[] {
  const found: Difference[] = [];
  compare(before, after, "", found);
  return found;
}

function compare(before: unknown, after: unknown, path: string, found: Difference[]): void {
  if (found.length >= MOST || Object.is(before, after)) return;
  if (isObject(before) && isObject(after) && Array.isArray(before) === Array.isArray(after)) {
    for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
      compare(before[key], after[key], path ? `${path}.${key}` : key, found);
    }
    return;
  }
  found.push({ path, before, after });
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

/** A value in one line. */
export function shortText(value: unknown, longest = 120): string {
  if (value === undefined) return "–";
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "–");
  return text.length > longest ? `${text.slice(0, longest)}…` : text;
}
