import { expect, test, vi } from "vitest";

const LIST = "/api/executions?level=top&limit=100";

test("an answer that was asked for early for one user is not taken by the next", async () => {
  let tenant = "acme";
  const early = new Map<string, unknown>();
  vi.stubGlobal("window", { arclogEarly: early });
  vi.stubGlobal("BroadcastChannel", undefined);
  vi.stubGlobal("fetch", (address: string) => {
    const me = { name: "viewer", tenant, csrf: "", roles: [], denied: {}, denied_signals: {} };
    return Promise.resolve(Response.json(address === "/api/session" ? { me } : { executions: [tenant] }));
  });
  const { loadSession } = await import("./session.ts");
  const { call } = await import("./client.ts");
  await loadSession();
  early.set(LIST, { answer: fetch(LIST), abort: new AbortController() });
  tenant = "globex";
  await loadSession();
  const answer = await call("GET /api/executions", { query: { level: "top", limit: 100 } });
  expect(answer).toEqual({ executions: ["globex"] });
  expect(early.size).toBe(0);
});
