import type { RunsAsked } from "../../api/queries.ts";
import { type ActionForm, pythonText } from "../../lib/forms.ts";

/** The list as it is filtered, for a script. */
export function formOf(asked: NonNullable<RunsAsked>): ActionForm {
  const cli = ["list"];
  for (const state of asked.state ?? []) cli.push("--state", state.toLowerCase());
  for (const name of ["path", "q", "since", "until", "level", "parent", "origin"] as const) {
    const value = asked[name];
    if (value) cli.push(name === "q" ? "--search" : `--${name}`, value);
  }
  const fields: [string, unknown][] = [
    ["states", asked.state],
    ["path", asked.path],
    ["text", asked.q],
    ["since", asked.since],
    ["until", asked.until],
    ["level", asked.level],
    ["parent", asked.parent],
    ["origin", asked.origin],
  ];
  const given = fields.filter(([, value]) => value).map(([name, value]) => `${name}=${pythonText(value)}`);
  return {
    cli,
    route: "GET /api/executions",
    query: asked as Record<string, unknown>,
    python: `client.find(RunQuery(${given.join(", ")}))`,
  };
}
