/** The search for events of all runs: its filters as they stand in the address, and the rows of its table. */
import type { Routes } from "../../api/types.ts";
import { type ActionForm, pythonText } from "../../lib/forms.ts";
import { SPAN_MS, SPANS } from "./filters.ts";

export const ENTITIES = [
  "playbook",
  "workflow",
  "step",
  "task",
  "loop",
  "next",
  "policy",
  "result",
  "command",
  "signal",
  "timer",
] as const;
export const EVENT_SPANS = [...SPANS, "any"] as const;

export interface EventsSearch {
  /** separated by commas */
  type?: string | undefined;
  entity?: (typeof ENTITIES)[number] | undefined;
  /** the last 24 hours when it is left out */
  span?: (typeof EVENT_SPANS)[number] | undefined;
  where?: string | undefined;
}

export type EventsAsked = NonNullable<Routes["GET /api/events"]["query"]>;

/** What the server is asked for. A span begins at a whole minute, so that the question stays the same for a while. */
export function askedOf(search: EventsSearch, now: number): EventsAsked {
  const asked: EventsAsked = {};
  const types = (search.type ?? "").split(/[\s,]+/).filter(Boolean);
  if (types.length) asked.type = types;
  if (search.entity) asked.entity = search.entity;
  const span = search.span ?? "24h";
  if (span !== "any") asked.since = new Date(Math.floor((now - SPAN_MS[span]) / 60_000) * 60_000).toISOString();
  if (search.where) asked.where = search.where;
  return asked;
}

/** The search for a script. */
export function formOf(asked: EventsAsked): ActionForm {
  const cli = ["events", ...(asked.type ?? []).flatMap((type) => ["--type", type])];
  for (const name of ["entity", "since", "where"] as const) if (asked[name]) cli.push(`--${name}`, asked[name]);
  const fields: [string, unknown][] = [
    ["types", asked.type],
    ["entity", asked.entity],
    ["since", asked.since],
    ["where", asked.where],
  ];
  const given = fields.filter(([, value]) => value).map(([name, value]) => `${name}=${pythonText(value)}`);
  return {
    cli,
    route: "GET /api/events",
    query: asked as Record<string, unknown>,
    python: `client.search(${given.join(", ")})`,
  };
}

export interface FoundEvent {
  id: string;
  run: string;
  seq: number;
  at: string;
  type: string;
  /** step, item and task */
  of: string;
  isError: boolean;
  /** of an event with an error */
  message: string;
}

/** A row of the table. */
export function foundEvent(event: Record<string, unknown>): FoundEvent {
  const text = (name: string): string => String(event[name] ?? "");
  const item = event.iteration === undefined || event.iteration === null ? "" : `item ${text("iteration")}`;
  return {
    id: text("event_id"),
    run: text("execution_id"),
    seq: Number(event.seq),
    at: text("timestamp"),
    type: text("event_type"),
    of: [text("step"), item, text("task")].filter(Boolean).join(" · "),
    isError: event.status === "error",
    message: messageIn(event.payload),
  };
}

function messageIn(payload: unknown): string {
  const { error, outcome } = (payload ?? {}) as { error?: unknown; outcome?: { error?: unknown } };
  const problem = (error ?? outcome?.error) as { message?: unknown } | null | undefined;
  return typeof problem?.message === "string" ? problem.message : "";
}
