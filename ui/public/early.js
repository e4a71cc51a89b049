// Asks for what the page will show while its code is still loading; `src/api/early.ts` takes the answers. What is asked for
// depends on the address. A server that asks nobody who they are marks its page as open; elsewhere nothing is asked for before
// it is known that somebody is signed in.
(() => {
  const answers = new Map();
  window.arclogEarly = answers;
  const ask = (address, accept = "application/json") => {
    const abort = new AbortController();
    const answer = fetch(address, {
      headers: { accept },
      credentials: "same-origin",
      redirect: "error",
      signal: abort.signal,
    });
    answer.catch(() => undefined); // whoever takes it sees the failure
    answers.set(address, { answer, abort });
    return answer;
  };
  const { pathname, search } = window.location;
  const [, run] = /^\/runs\/(\d{1,20})$/.exec(pathname) ?? [];
  if (run) {
    const { code = "", styles = "" } = document.currentScript?.dataset ?? {};
    for (const [names, rel, as] of [
      [code, "modulepreload", "script"],
      [styles, "preload", "style"],
    ]) {
      for (const href of names.split(" ").filter(Boolean)) {
        document.head.append(Object.assign(document.createElement("link"), { rel, as, href }));
      }
    }
  }
  const next = () => {
    if (run) {
      const path = `/api/executions/${run}`;
      ask(`/api/executions?q=${run}&limit=1`);
      ask(`${path}/why`);
      ask(`${path}/graph`);
      ask(`${path}/outline/stream`, "text/event-stream");
    } else if (pathname === "/runs" && !search) {
      ask("/api/executions?level=top&limit=100");
    }
  };
  const session = ask("/api/session");
  const [page] = performance.getEntriesByType("navigation");
  if (page?.serverTiming?.some((mark) => mark.name === "open")) next();
  else {
    session
      .then((answer) => (answer.ok ? answer.clone().json() : null))
      .then((found) => found?.me && next())
      .catch(() => undefined);
  }
})();
