import { expect, test } from "vitest";
import { askedOf, formOf, foundEvent } from "./eventSearch.ts";

const NOW = Date.parse("2026-06-04T12:00:30Z");

test("a search asks for types, an entity, a time and a condition", () => {
  expect(askedOf({}, NOW)).toEqual({ since: "2026-06-03T12:00:00.000Z" });
  const asked = askedOf({ type: "task.failed, step.failed", entity: "task", span: "any", where: "attempt > 1" }, NOW);
  expect(asked).toEqual({ type: ["task.failed", "step.failed"], entity: "task", where: "attempt > 1" });
  const form = formOf(asked);
  expect(form.cli).toEqual([
    "events",
    "--type",
    "task.failed",
    "--type",
    "step.failed",
    "--entity",
    "task",
    "--where",
    "attempt > 1",
  ]);
});

test("a row has the place of an event and its error", () => {
  const event = { event_id: "9", execution_id: "8", seq: 3, event_type: "task.failed", status: "error", step: "load" };
  const payload = { outcome: { error: { message: "refused" } } };
  const row = foundEvent({ ...event, iteration: 0, task: "get", payload });
  expect([row.of, row.message, row.isError]).toEqual(["load · item 0 · get", "refused", true]);
  expect(foundEvent({ ...event, payload: {} }).message).toBe("");
});
