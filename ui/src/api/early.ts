/** Answers that `public/early.js` asked for while the code of the page was loading. Each is taken once. */

interface Early {
  answer: Promise<Response>;
  abort: AbortController;
}

declare global {
  interface Window {
    arclogEarly?: Map<string, Early>;
  }
}

/** What nobody took after this long is of no use any more. */
const KEPT_MS = 10_000;

setTimeout(dropEarly, KEPT_MS);

/** Forget the answers that nobody took: they are too old, or they were for another user. */
export function dropEarly(): void {
  for (const { abort } of window.arclogEarly?.values() ?? []) abort.abort();
  window.arclogEarly?.clear();
}

/** The answer to a GET that was asked for early, if it was. */
export function takeEarly(address: string, init: RequestInit): Promise<Response> | undefined {
  if (init.method !== undefined && init.method !== "GET") return undefined;
  const early = window.arclogEarly?.get(address);
  if (!early) return undefined;
  window.arclogEarly?.delete(address);
  if (init.signal?.aborted) early.abort.abort();
  init.signal?.addEventListener("abort", () => early.abort.abort());
  return early.answer;
}
