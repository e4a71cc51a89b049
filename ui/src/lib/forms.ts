/** The same action for a script: as a command, as curl, as Python. */
import { addressOf, type Route } from "../api/client.ts";

export interface ActionForm {
  /** arguments of `arclog`; none where it has no such command */
  cli?: string[];
  route: Route;
  path?: Record<string, string>;
  query?: Record<string, unknown>;
  body?: unknown;
  /** the name of a file that is the body, or that the answer is written to */
  upload?: string;
  output?: string;
  /** a call on `client`, e.g. `client.why("123")`; none where the Python client has no such call */
  python?: string;
}

export interface Forms {
  CLI: string;
  curl: string;
  Python: string;
}

/** A word for a POSIX shell. */
export function quoted(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** A value as Python writes it. */
export function pythonText(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(pythonText).join(", ")}]`;
  if (typeof value === "object") {
    const fields = Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${pythonText(one)}`);
    return `{${fields.join(", ")}}`;
  }
  return JSON.stringify(value);
}

/** All forms of an action; '' where there is none. `server` is this server's address, `authenticated` whether it asks for a key. */
export function formsOf(action: ActionForm, server: string, authenticated: boolean): Forms {
  const method = action.route.slice(0, action.route.indexOf(" "));
  const address = server + addressOf(action.route, action.path, action.query);
  const curl = ["curl"];
  if (method !== "GET") curl.push("-X", method);
  if (authenticated) curl.push("-H", '"Authorization: Bearer $ARCLOG_TOKEN"');
  if (action.body !== undefined) {
    curl.push("-H", quoted("Content-Type: application/json"), "-d", quoted(JSON.stringify(action.body)));
  }
  if (action.upload)
    curl.push("-H", quoted("Content-Type: application/zip"), "--data-binary", quoted(`@${action.upload}`));
  if (action.output) curl.push("-o", quoted(action.output));
  curl.push(quoted(address));
  const python = action.python
    ? [
        "from arclog.client import Client",
        "",
        `with Client(${JSON.stringify(server)}) as client:`,
        `    print(${action.python})`,
      ]
    : [];
  return {
    CLI: action.cli ? ["arclog", ...action.cli, "--server", server].map(quoted).join(" ") : "",
    curl: curl.join(" "),
    Python: python.join("\n"),
  };
}
