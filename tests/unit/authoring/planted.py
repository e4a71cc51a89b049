"""Planted mistakes. The line of each mistake ends in `#! code`; a comment changes nothing of what is read."""

from __future__ import annotations

_HEAD = "metadata: {name: planted}\n"


def _task(*lines: str, kind: str = "http", head: str = "") -> str:
    body = "\n".join(f"      {line}" for line in lines)
    return f"{_HEAD}{head}workflow:\n  - step: start\n    tool:\n      kind: {kind}\n{body}\n"


def _step(*lines: str, head: str = "") -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"{_HEAD}{head}workflow:\n  - step: start\n{body}\n"


def _python(*code: str, args: str = "{}", mark: str = "") -> str:
    lines = "\n".join(f"        {line}" for line in code)
    return f"{_HEAD}workflow:\n  - step: start\n    tool:\n      kind: python\n      args: {args}{mark}\n      code: |\n{lines}\n"


def _rule(when: str, then: str = "{do: fail}", code: str = "") -> str:
    return _task(
        "url: https://example.org", "spec:", "  policy:", "    rules:", f'      - when: "{{{{ {when} }}}}"{code}',
        f"        then: {then}", "      - else: {then: {do: break}}",
    )  # fmt: skip


def _root(line: str) -> str:
    return f"{_HEAD}{line} #! unknown-key\nworkflow:\n  - step: start\n    tool: {{kind: noop}}\n"


NOOP = "tool: {kind: noop}"
URL = "url: https://example.org"
TWO = "workflow:\n  - step: start\n    tool: [{name: one, kind: noop}, {name: agg, kind: noop, data: 1}]\n    next: {arcs: [{step: two}]}\n  - step: two\n"

PLANTED: list[str] = [
    # --- words of other tools
    *[_step(NOOP, f"{key}: 1 #! unknown-key") for key in (
        "depends_on", "needs", "dependsOn", "upstream", "retries", "max_retries", "on_failure", "on_error", "catch",
        "for_each", "foreach", "with_items", "matrix", "script", "run", "command", "timeout", "execution_timeout",
        "if", "condition", "task_id", "uses", "operator", "image", "tasks", "inputs", "params", "env", "finally",
        "parallel", "register", "outputs", "description", "id",
    )],
    *[_root(f"{key}: 1") for key in (
        "inputs", "schedule", "cron", "triggers", "jobs", "tasks", "stages", "secrets", "env", "timeout", "concurrency",
        "outputs", "on_failure", "finally", "description", "tags", "parameters",
    )],
    *[_task(URL, f"{key}: 1 #! unknown-key") for key in ("retries", "on_error", "register", "timeout", "id", "label")],
    _step(NOOP, "next:", "  arcs:", "    - {target: start} #! unknown-key").replace("{target: start}", "{target: start, step: start}"),
    _step(NOOP, "loop: {over: [1], in: [1], iterator: n} #! unknown-key"),
    _step(NOOP, "loop: {in: [1], as: n, iterator: n} #! unknown-key"),
    # --- older forms
    *[_step(NOOP, f"{key}: 1 #! legacy-form") for key in ("when", "case", "retry", "eval", "vars", "sink", "with", "type", "call")],
    _step(NOOP, "next: start #! legacy-form"),
    _step(NOOP, "next: [start] #! legacy-form"),
    _root("vars: {}").replace("unknown-key", "legacy-form"),
    # --- misspelt
    _step("tool: {kind: nop} #! unknown-kind"),
    _step(NOOP, "next: {arcs: [{step: strat}]} #! unknown-step"),
    _step(NOOP, "dsec: x #! unknown-key"),
    _task("ulr: https://example.org #! unknown-key", URL),
    _task(URL, "spec: {tiemout: 5} #! unknown-key"),
    _task(URL, "method: GTE #! http-method"),
    _task(URL, "auth: billing #! unknown-keychain"),
    _task('url: "https://x.org/{{ workload.idz }}" #! unknown-workload', head="workload: {ids: 1}\n"),
    _task('url: "https://x.org/{{ wrkload.ids }}" #! unknown-name', head="workload: {ids: 1}\n"),
    _step("tool:", "  kind: noop", '  data: "{{ iter.rwo }}" #! unknown-iter', "loop: {in: [1], iterator: row}"),
    _step("tool:", "  kind: noop", '  data: "{{ iter.row }}" #! unknown-iter'),
    _step("tool:", "  kind: noop", '  data: "{{ iter.parent.x }}" #! unknown-iter',
          "loop: {in: [1], iterator: row, loop: {in: [2], iterator: cell}}"),
    _rule("outcome.status == 'success'", code=" #! outcome-status"),
    _rule("outcome.status == 404", code=" #! outcome-status").replace("404", "'404'"),
    _HEAD + 'workload: {id: "{{ execution_id }}"} #! workload-template\nworkflow:\n  - step: start\n    tool: {kind: noop}\n',
    _step("args: {n: 1}", 'tool: {kind: noop, data: "{{ n }}, {{ args.n }}"} #! unknown-name'),
    _step(NOOP, "next: {arcs: [{step: start, when: '{{ result.n == 1 }}'}]} #! unknown-name"),
    # --- what cannot work
    _HEAD + TWO + '    tool: {kind: noop, data: "{{ start.one.data }}"} #! foreign-task\n',
    _HEAD + TWO + '    tool: {kind: noop, data: "{{ start.agg.data }}"} #! foreign-task\n',
    _step("tool:", "  kind: shell", "  command: [touch, a]", "  outputs: {1a: a} #! output-name"),
    _step("tool:", "  kind: shell", "  command: [touch, a]", "  outputs: {a: ../a} #! output-path"),
    _step("tool:", "  - {name: w, kind: shell, command: [touch, a], outputs: {a: a}}",
          '  - {name: r, kind: shell, command: [cat, "{{ w.files.b }}"]} #! unknown-file'),
    _step("tool:", "  - {name: w, kind: shell, command: [touch, a], outputs: {a: a}}",
          '  - {name: r, kind: postgres, auth: db, command: "SELECT {{ w.files.a }}"} #! file-unread'),
    _step("args: {limit: 5} #! unused-args", NOOP),
    _step("args: {a: 1, limit: 5} #! unused-args", 'tool: {kind: noop, data: "{{ args.a }}"}'),
    _step(NOOP, "loop: {in: abc, iterator: n} #! loop-in-text"),
    _step(NOOP, "loop: {in: workload.items, iterator: n} #! loop-in-text"),
    _task("url: example.org/a #! url-scheme"),
    _task("url: ftp://example.org/a #! url-scheme"),
    _task(URL, "method: POST", "json: {a: 1}", "form: {a: 1} #! two-bodies"),
    _task(URL, "method: GET", "json: {a: 1} #! http-body"),
    _task(URL, "headers:", "  Authorization: Bearer abcdef1234567890 #! literal-secret"),
    _task(URL, "headers:", "  X-Api-Key: abcdef1234567890 #! literal-secret"),
    _task("url: https://ada:hunter22@example.org/ #! literal-secret"),
    _task("database: x.db", "command: SELECT 1 --", kind="sqlite").replace(
        "database: x.db", "database: x.db").replace("kind: sqlite", "kind: shell").replace(
        "      database: x.db\n      command: SELECT 1 --", "      command: [psql, 'postgres://ada:hunter22@db/x'] #! literal-secret"),
    # --- python
    _python("def main(:", "    return 1").replace("main(:", "main(: #! python-syntax"),
    _python("x = 1", "return x #! python-syntax"),
    _python("def main():", "  x = 1", "    return x #! python-syntax"),
    _python("result = {{ workload.x }} + #! python-syntax"),
    _python("def main(row): #! python-args", "    return row"),
    _python("def main(row, cell): #! python-args", "    return row + cell", args="{row: 1}"),
    _python("def main(*, row): #! python-args", "    return row"),
    _python("def main():", "    return jsn.dumps({}) #! python-name"),
    _python("import json", "result = jsno.dumps({}) #! python-name"),
    _python("result = total + 1 #! python-name"),
    _python("def main():", "    for row in rows: #! python-name", "        pass"),
    # --- shape
    _step(NOOP, "next: {arcs: [{step: start, when: '{{ ctx.a == }}'}]} #! template-syntax"),
    _step(NOOP, "spec: {join: some} #! bad-value"),
    _step(NOOP, "spec: {policy: {lifecycle: {timeout_s: 0}}} #! out-of-range"),
    _step(NOOP, "spec: {policy: {retry: 3}} #! control-key"),
    _step("tool: {fetch: {kind: noop}} #! task-label-map"),
    _step(NOOP, "loop: {in: [1]} #! missing-key"),
    _task(URL, "spec: {policy: {rules: [{when: true, then: {do: jump, to: nowhere}}]}} #! unknown-task"),
    _task(URL, "spec: {policy: {rules: [{when: true, then: {do: fail, attempts: 3}}]}} #! action-key"),
    f"{_HEAD}workflow:\n  - step: start\n    tool: {{kind: noop}}\n  - step: start #! duplicate-name\n    tool: {{kind: noop}}\n",
    f"{_HEAD}workflow:\n  - step: start\n    tool: {{kind: noop}}\n  - step: lost #! unreachable-step\n    tool: {{kind: noop}}\n",
    f"{_HEAD}workflow:\n  - step: ctx #! reserved-name\n    tool: {{kind: noop}}\n",
    f"{_HEAD}workflow:\n  - step: my-step #! bad-name\n    tool: {{kind: noop}}\n",
]  # fmt: skip
