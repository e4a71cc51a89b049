import { expect, test } from "vitest";
import type { ListedRun } from "../api/types.ts";
import { barsOf } from "../views/home/bars.ts";
import { askedOf } from "../views/runs/filters.ts";
import { merged, newer } from "../views/runs/useRuns.ts";
import { fits } from "./commands.ts";
import { formsOf, pythonText, quoted } from "./forms.ts";
import { shareText } from "./numbers.ts";
import { groupsOf, laidOver, type PlanGraph, type PlanStep } from "./plan.ts";
import { relativeText, spanText, ticksOf, tickText } from "./time.ts";
import { flagOf, numberOf, oneOf, parseSearch, someOf, stringifySearch, textOf } from "./url.ts";

test("a request's workload is laid over the playbook's", () => {
  const merged = laidOver({ a: 1, user: { name: "Ada", ids: [1, 2] } }, { user: { ids: [3] }, b: null });
  expect(merged).toEqual({ a: 1, user: { name: "Ada", ids: [3] }, b: null });
});

test("spans are as short as they are exact", () => {
  const texts = [0, 0.4, 63, 100, 999, 12_449, 59_999, 60_000, 200_000, 7_500_000, 90_000_000, -5].map(spanText);
  expect(texts).toEqual([
    "0 s",
    "0 s",
    "63 ms",
    "0.1 s",
    "0.9 s",
    "12.4 s",
    "59.9 s",
    "1 m",
    "3 m 20 s",
    "2 h 5 m",
    "1 d 1 h",
    "0 s",
  ]);
});

test("ages have one unit, whichever way they point", () => {
  const now = 1_000_000_000;
  expect(relativeText(now - 500, now)).toBe("just now");
  expect(relativeText(now - 12_900, now)).toBe("12 s ago");
  expect(relativeText(now + 3 * 3_600_000 + 5, now)).toBe("in 3 h");
});

test("a share is never whole when something is missing", () => {
  expect([shareText(1, 1), shareText(9_999, 10_000), shareText(997, 1000), shareText(1, 3), shareText(0, 0)]).toEqual([
    "100 %",
    "99.9 %",
    "99.7 %",
    "33 %",
    "–",
  ]);
});

test("words for a shell and values for Python are quoted", () => {
  expect(quoted("plain-1.2/x")).toBe("plain-1.2/x");
  expect(quoted("it's $HOME")).toBe(`'it'\\''s $HOME'`);
  expect(quoted("")).toBe("''");
  expect(pythonText({ a: [1, true, null], "b'": 'x"' })).toBe(`{"a": [1, True, None], "b'": "x\\""}`);
});

test("an action has a form for each language", () => {
  const action = {
    cli: ["cancel", "12", "--reason", "too late"],
    route: "POST /api/executions/{execution_id}/signal" as const,
    path: { execution_id: "12" },
    body: { signal: "CANCEL", reason: "too late" },
    python: 'client.cancel("12", "too late")',
  };
  const forms = formsOf(action, "http://127.0.0.1:8420", true);
  expect(forms.CLI).toBe("arclog cancel 12 --reason 'too late' --server http://127.0.0.1:8420");
  expect(forms.curl).toBe(
    `curl -X POST -H "Authorization: Bearer $ARCLOG_TOKEN" -H 'Content-Type: application/json' -d '{"signal":"CANCEL","reason":"too late"}' http://127.0.0.1:8420/api/executions/12/signal`,
  );
  expect(forms.Python).toContain('with Client("http://127.0.0.1:8420") as client:');
});

test("addresses are read and written plainly", () => {
  const search = {
    q: "a&b=1 ü",
    state: ["FAILED", "RUNNING"],
    called: true,
    none: undefined,
    path: "shop/orders",
    empty: "",
  };
  const text = stringifySearch(search);
  expect(text).toBe("?q=a%26b%3D1+%C3%BC&state=FAILED,RUNNING&called=true&path=shop/orders");
  const back = parseSearch(text);
  expect(textOf(back.q)).toBe("a&b=1 ü");
  expect(someOf(back.state, ["RUNNING", "FAILED", "X"] as const)).toEqual(["RUNNING", "FAILED"]);
  expect(flagOf(back.called)).toBe(true);
  expect(stringifySearch({})).toBe("");
});

test("what an address says wrongly is left out", () => {
  expect([
    oneOf("z", ["a"] as const),
    numberOf("1.5"),
    numberOf("-1"),
    numberOf("12"),
    textOf(7),
    flagOf("no"),
  ]).toEqual([undefined, undefined, undefined, 12, "7", undefined]);
});

test("runs that are known twice are as they were seen last, newest first", () => {
  const run = (execution_id: string, state: string): ListedRun => ({ execution_id, state }) as ListedRun;
  const found = merged([run("12", "RUNNING"), run("9", "RUNNING")], [run("100", "RUNNING"), run("12", "FAILED")]);
  expect(found.map((one) => `${one.execution_id} ${one.state}`)).toEqual(["100 RUNNING", "12 FAILED", "9 RUNNING"]);
  expect([newer("100", "99"), newer("12", "13"), newer("13", "12")]).toEqual([true, false, true]);
});

test("filters become what the server is asked for", () => {
  const now = Date.parse("2026-11-16T12:00:30Z");
  expect(askedOf({}, now)).toEqual({ level: "top" });
  expect(askedOf({ called: true, span: "1h", q: "x" }, now)).toEqual({ q: "x", since: "2026-11-16T11:00:00.000Z" });
  expect(askedOf({ parent: "7", since: "2026-01-01T00:00:00Z" }, now)).toEqual({
    parent: "7",
    since: "2026-01-01T00:00:00Z",
  });
});

test("hours become bars, those without a run as well", () => {
  const at = (hour: number): string => `2026-11-16T${String(hour).padStart(2, "0")}:00:00.000000Z`;
  const hours = [
    { at: at(0), completed: 1, failed: 0, cancelled: 0 },
    { at: at(5), completed: 2, failed: 3, cancelled: 1 },
    { at: at(6), completed: 4, failed: 0, cancelled: 0 },
  ];
  const bars = barsOf({ since: at(0), until: at(11), hours }, 12, 6);
  expect(bars.map(({ completed, failed, cancelled }) => [completed, failed, cancelled])).toEqual([
    [3, 3, 1],
    [4, 0, 0],
  ]);
});

test("what fits what was typed comes first where it begins a word", () => {
  expect(fits("Go to Runs", "runs")).toBeGreaterThan(fits("Prunes", "runs"));
  expect(fits("Keyboard shortcuts", "kbsc")).toBeGreaterThan(0);
  expect(fits("Runs", "xyz")).toBe(0);
});

function planOf(arcs: Record<string, string[]>, loops: string[] = []): PlanGraph {
  const steps = Object.entries(arcs).map(([name, targets]) => ({
    name,
    loop: loops.includes(name) ? { in: [], iterator: "n", mode: "parallel" } : null,
    arcs: targets.map((step, index) => ({ step, when: null, place: `${name}/${index}`, line: 1 })),
  }));
  return { entry: "start", steps: steps as unknown as PlanStep[] } as PlanGraph;
}

test("steps between the same steps are a group, loops and few ones are not", () => {
  const shards = ["a", "b", "c", "d"];
  const fan = { start: [...shards, "odd", "loop"], ...Object.fromEntries(shards.map((name) => [name, ["end"]])) };
  const plan = planOf({ ...fan, odd: ["end", "other"], loop: ["end"], end: [], other: [] }, ["loop"]);
  expect(groupsOf(plan, 3).map((group) => group.steps.map((step) => step.name))).toEqual([shards]);
  expect(groupsOf(plan, 5)).toEqual([]);
  // A step that leads to itself is drawn with its arc.
  expect(groupsOf(planOf({ ...fan, a: ["a"], b: ["b"], c: ["c"], d: ["d"] }), 3)).toEqual([]);
});

test("the ticks of an axis are round, few and within it", () => {
  expect(ticksOf(0, 48)).toEqual([0, 10, 20, 30, 40]);
  expect(ticksOf(0, 5800)).toEqual([0, 2000, 4000]);
  expect(ticksOf(1234, 100)).toEqual([1240, 1260, 1280, 1300, 1320]);
  const texts = (begin: number, width: number): string[] =>
    ticksOf(begin, width).map((at, _, all) => tickText(at, all));
  expect(texts(0, 240)).toEqual(["0 s", "50 ms", "100 ms", "150 ms", "200 ms"]);
  expect(texts(0, 1500)).toEqual(["0 s", "0.5 s", "1.0 s"]);
  expect(texts(2000, 100)).toEqual(["2.00 s", "2.02 s", "2.04 s", "2.06 s", "2.08 s"]);
  const days = ticksOf(0, 30 * 86_400_000);
  expect(days.length).toBeGreaterThan(1);
  expect(days.length).toBeLessThan(7);
});
