/** A plan as the server draws it (`GET /api/executions/{id}/graph`, `POST /api/check`). */

export interface PlanTask {
  name: string;
  kind: string;
  config: Record<string, unknown>;
  rules: { when: unknown; then: Record<string, unknown>; line: number }[];
  line: number;
}

export interface PlanArc {
  step: string;
  when: unknown;
  place: string;
  line: number;
}

export interface PlanStep {
  name: string;
  desc: string;
  tasks: PlanTask[];
  loop: { in: unknown; iterator: string; mode: string } | null;
  arcs: PlanArc[];
  mode: string;
  join: string;
  admit: { when: unknown; allow: boolean; line: number }[] | null;
  pool: string;
  line: number;
}

export interface PlanGraph {
  name: string;
  path: string;
  description: string;
  entry: string;
  workload: Record<string, unknown>;
  /** declarations of typed inputs, by name */
  inputs?: Record<string, unknown>;
  steps: PlanStep[];
}

export function planOf(drawn: Record<string, unknown> | null | undefined): PlanGraph | null {
  return drawn && Array.isArray(drawn.steps) ? (drawn as unknown as PlanGraph) : null;
}

/** A condition as one line: `{{ x }}` without its braces. */
export function conditionText(when: unknown): string {
  if (when === null || when === undefined) return "";
  const text = typeof when === "string" ? when : JSON.stringify(when);
  const line = text.replace(/\s+/g, " ").trim();
  const [, inside] = /^\{\{((?:(?!\{\{|\}\}).)*)\}\}$/.exec(line) ?? [];
  return (inside ?? line).trim();
}

/** Where each step stands in the source: from its line to the one before the next step. */
export function stepAtLine(plan: PlanGraph, line: number): string | undefined {
  let found: string | undefined;
  let best = 0;
  for (const step of plan.steps) {
    if (step.line <= line && step.line > best) {
      best = step.line;
      found = step.name;
    }
  }
  return found;
}

/** A request's own workload over the playbook's: objects are merged, everything else is replaced. */
export function laidOver(defaults: Record<string, unknown>, given: Record<string, unknown>): Record<string, unknown> {
  const merged = new Map(Object.entries(defaults));
  for (const [name, value] of Object.entries(given)) {
    const before = merged.get(name);
    merged.set(name, isObject(before) && isObject(value) ? laidOver(before, value) : value);
  }
  return Object.fromEntries(merged);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Steps that stand between the same steps: a large graph shows them as one node. */
export interface StepGroup {
  id: string;
  steps: PlanStep[];
}

/** So many steps side by side are shown as one node. */
const LEAST_GROUPED = 12;

/** Groups of steps that have the same steps before and after them. Loops stand alone: they have a picture of their own. */
export function groupsOf(plan: PlanGraph, least: number = LEAST_GROUPED): StepGroup[] {
  if (plan.steps.length < least) return [];
  const before = new Map<string, string[]>();
  for (const step of plan.steps) {
    for (const arc of step.arcs) {
      const known = before.get(arc.step);
      if (known) known.push(step.name);
      else before.set(arc.step, [step.name]);
    }
  }
  const alike = new Map<string, PlanStep[]>();
  for (const step of plan.steps) {
    const after = step.arcs.map((arc) => arc.step);
    if (step.loop || step.name === plan.entry || after.includes(step.name)) continue;
    const key = JSON.stringify([[...new Set(before.get(step.name) ?? [])].sort(), [...new Set(after)].sort()]);
    const known = alike.get(key);
    if (known) known.push(step);
    else alike.set(key, [step]);
  }
  return [...alike.values()]
    .filter((steps) => steps.length >= least)
    .map((steps) => ({ id: `group:${steps[0]?.name ?? ""}`, steps }));
}
