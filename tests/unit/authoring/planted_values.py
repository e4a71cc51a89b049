"""Planted mistakes in values, routes, templates and code: every key is spelt right, and it still cannot work."""

from __future__ import annotations

_HEAD = "metadata: {name: planted}\n"
_NEXT = "    next: {arcs: [{step: two}]}\n  - step: two\n    tool: {kind: noop}\n"


def _spec(line: str, more: str = "") -> str:
    """A line of executor.spec."""
    return f"{_HEAD}executor:\n  spec:\n    {line}\n{more}workflow:\n  - step: start\n    tool: {{kind: noop}}\n{_NEXT}"


def _step(*lines: str) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"{_HEAD}workload: {{n: 1, ids: [1]}}\nworkflow:\n  - step: start\n{body}"


def _task(*lines: str, head: str = "") -> str:
    body = "".join(f"      {line}\n" for line in lines)
    return f"{_HEAD}{head}workload: {{n: 1, ids: [1]}}\nworkflow:\n  - step: start\n    tool:\n{body}"


def _routes(*arcs: str) -> str:
    body = "".join(f"        - {arc}\n" for arc in arcs)
    return (
        f"{_HEAD}workload: {{n: 1}}\nworkflow:\n  - step: start\n    tool: {{kind: noop}}\n    next:\n      arcs:\n{body}"
        "  - step: two\n    tool: {kind: noop}\n  - step: three\n    tool: {kind: noop}\n"
    )


def _sql(line: str, kind: str = "sqlite") -> str:
    return _task(f"kind: {kind}", "database: x.db", f"command: {line}")


def _python(*code: str, args: str = "{n: 1}") -> str:
    return _task("kind: python", f"args: {args}", "code: |", *(f"  {line}" for line in code))


VALUES: list[str] = [
    # --- inputs
    _spec("inputs: {n: {type: int}} #! bad-value"),
    _spec("inputs: {n: {type: integer, default: abc}} #! bad-value"),
    _spec("inputs: {n: {type: integer, min: 5, max: 1}} #! conflict"),
    _spec("inputs: {n: {type: string, pattern: '['}} #! bad-value"),
    _spec("inputs: {n: {type: secret, default: abcdefgh}} #! bad-value"),
    _spec("inputs: {n: {type: integer, required: true, default: 1}} #! conflict"),
    _spec("inputs: {n: {type: string, enum: []}} #! bad-value"),
    _spec("inputs: {1n: {type: string}} #! bad-name"),
    _spec("inputs: {n: {type: list, items: {type: text}}} #! bad-value"),
    _spec("inputs: {n: {type: integer, default: 1}}", "workload: {n: 2} #! conflict\n"),
    # --- the run as a whole
    _spec("entry_step: begin #! unknown-step"),
    _spec("final_step: tidy #! unknown-step"),
    _spec("final_step: two").replace("[{step: two}]}", "[{step: two}]} #! bad-value"),
    _spec("timeout_s: 0 #! out-of-range"),
    _spec("timeout_s: ten minutes #! wrong-type"),
    _spec("sequence: 'yes please' #! wrong-type"),
    _spec("concurrency: {max: 0} #! out-of-range"),
    _spec("concurrency: {max: 1, on_excess: wait} #! bad-value"),
    _spec("ctx: {total: {reducer: add}} #! bad-value"),
    _spec("retry: {attempts: 0} #! out-of-range"),
    _spec("retry: {backoff: fibonacci} #! bad-value"),
    _spec("retry: {on: [timeouts]} #! bad-value"),
    _spec("retry: {delay: -1} #! out-of-range"),
    _spec("schedules: [{cron: '61 * * * *'}] #! bad-value"),
    _spec("schedules: [{cron: '0 6 * *'}] #! bad-value"),
    _spec("schedules: [{cron: '0 6 * * *', tz: Mars/Base}] #! bad-value"),
    _spec("schedules: [{cron: '0 6 * * *', overlap: wait}] #! bad-value"),
    _spec("on_failure: [{email: nobody}] #! bad-value"),
    _spec("on_failure: [{webhook: ops.example.org}] #! bad-value"),
    _spec("on_failure: [{webhook: 'https://x.org', secret: gone}] #! unknown-keychain"),
    _spec("on_failure: [{}] #! one-of"),
    _spec("webhooks: [{url: 'https://x.org', secret: gone}] #! unknown-keychain"),
    _spec("policy: {limits: {max_payload_bytes: 10}} #! out-of-range"),
    _spec("policy: {approval: always} #! bad-value"),
    _spec("result: '{{ nowhere.data }}' #! unknown-name"),
    # --- steps and routes
    _step("tool: {kind: noop}", "spec: {end: success} #! bad-value"),
    _step("tool: {kind: noop}", "spec: {join: {count: 3}} #! join-count"),
    _step("tool: {kind: noop}", "spec: {policy: {admit: {rules: [{when: true, then: {allow: maybe}}]}}} #! wrong-type"),
    _step("tool: {kind: noop}", "spec: {policy: {failure: {mode: ignore}}} #! bad-value"),
    _step("tool: {kind: noop}", "loop: {in: '{{ workload.ids }}', iterator: my-item} #! bad-name"),
    _step("tool: {kind: noop}", "loop: {in: '{{ workload.ids }}', iterator: index} #! reserved-name"),
    _step("tool: {kind: noop}", "loop: {in: [1], iterator: n, spec: {mode: async}} #! bad-value"),
    _step("tool: {kind: noop}", "loop: {in: [1], iterator: n, spec: {max_in_flight: 0}} #! out-of-range"),
    _step("tool: [] #! missing-key"),
    _step("tool: http #! wrong-type"),
    _routes("{step: two}", "{step: three, when: '{{ workload.n > 1 }}'} #! dead-rule"),
    _routes("{step: two, when: \"{{ event.name == 'call.done' }}\"} #! event-name", "{step: three}"),
    _routes("{step: two, when: '{{ workload.n }} > 1'} #! template-syntax", "{step: three}"),
    _routes("{when: '{{ workload.n }}'} #! missing-key", "{step: two}", "{step: three}"),
    _routes("{step: two, args: [1]} #! wrong-type", "{step: three}"),
    _routes("{step: two, when: '{{ keychain.api.value }}'} #! keychain-misplaced", "{step: three}"),
    # --- tasks
    _task("kind: assert #! missing-key", "message: no"),
    _task("kind: assert", "that: '{{ workload.n = 1 }}' #! template-syntax"),
    _task("kind: wait #! one-of"),
    _task("kind: wait", "for_s: 1", "until: '2027-01-01T00:00:00Z' #! one-of"),
    _task("kind: playbook #! one-of"),
    _task("kind: workbook", "name: nothing #! unknown-workbook"),
    _task("kind: python #! missing-key", "args: {n: 1}"),
    _task("kind: shell", "command: {a: 1} #! wrong-type"),
    _task("kind: http", "url: https://x.org", "spec: {timeout: 0} #! out-of-range"),
    _task("kind: http", "url: https://x.org", "spec: {retry: 3} #! wrong-type"),
    _task("kind: http", "url: https://x.org", "spec: {policy: {rules: [{when: true, then: {do: again}}]}} #! bad-value"),
    _task("kind: http", "url: https://x.org", "spec: {policy: {rules: [{else: {then: {do: fail}}}, {when: true, then: {do: fail}}]}} #! else-not-last"),
    _task("kind: http", "url: https://x.org", "spec: {retry: {attempts: 2}, policy: {rules: [{else: {then: {do: fail}}}]}} #! conflict"),
    _task("kind: http", "url: https://x.org", "auth: db #! auth-kind", head="keychain: [{name: db, kind: postgres_credential}]\n"),
    _task("kind: noop", "auth: db #! auth-unused", head="keychain: [{name: db, kind: secret}]\n"),
    _task("kind: noop", "data: '{{ workload.n | lowercase }}' #! template-syntax"),
    _task("kind: noop", "data: '{{ now() }}' #! template-syntax"),
    _task("kind: noop", "data: '{{ workload.n ' #! template-syntax"),
    _task("kind: noop", "data: '{% if workload.n %}yes' #! template-syntax"),
    _task("kind: noop", "data: '{{ outcome.data }}' #! unknown-name"),
    _task("kind: python", "file: jobs/gone.py #! missing-file"),
    _task("kind: python", "file: ../gone.py #! bad-file"),
    _task("kind: python", "file: /etc/passwd #! bad-file"),
    _task("kind: http", "url: https://x.org", "spec: {retry: {delay: 600}} #! retry-delay").replace("      kind: http\n      url: https://x.org\n      spec: {retry: {delay: 600}} #! retry-delay", "      {kind: http, url: https://x.org, spec: {retry: {delays: [1, 900]}}} #! retry-delay"),
    _task("kind: http", "url: https://x.org", "spec: {policy: {rules: [{when: \"{{ outcome.status == 'error' }}\", then: {do: retry, delay: 600}}]}} #! retry-delay"),
    # --- keychain
    f"{_HEAD}keychain: [{{name: api, kind: bearer, token: abcdefghijkl}}] #! literal-secret\nworkflow:\n  - step: start\n    tool: {{kind: noop}}\n",
    f"{_HEAD}keychain: [{{name: api, kind: vault}}] #! bad-value\nworkflow:\n  - step: start\n    tool: {{kind: noop}}\n",
    f"{_HEAD}keychain: [{{kind: secret}}] #! missing-key\nworkflow:\n  - step: start\n    tool: {{kind: noop}}\n",
    f"{_HEAD}keychain: [{{name: a, kind: secret}}, {{name: a, kind: env}}] #! duplicate-name\nworkflow:\n  - step: start\n    tool: {{kind: noop}}\n",
    # --- SQL
    _sql("SELECT * FROM t WHERE name = 'x {{ workload.n }}' #! sql-template"),
    _sql("SELECT * FROM t_{{ workload.n }} #! sql-template"),
    _sql("SELECT * FROM {{ workload.n }} #! sql-template"),
    _sql("'{{ workload.n }}' #! sql-template"),
    _sql("SELECT {% if workload.n %} 1 {% endif %} #! sql-template"),
    # --- python
    _python("def main(n)", "    return n #! python-syntax").replace("main(n)\n", "main(n) #! python-syntax\n").replace("return n #! python-syntax", "return n"),
    _python("x = [1, 2 #! python-syntax", "result = x"),
    _python("def main(n):", "    return pd.DataFrame(n) #! python-name"),
    _python("def main(n):", "    totl = n", "    return total #! python-name"),
    _python("def main(m): #! python-args", "    return m"),
    _python("result = 'a' + #! python-syntax"),
    _python("await n #! python-syntax").replace("await n", "result = yield n"),
    # --- YAML
    f"{_HEAD}workflow:\n  - step: start\n    tool: {{kind: noop}}\n    tool: {{kind: noop}} #! yaml-duplicate-key\n",
    f"{_HEAD}workflow:\n  - step: start\n    tool: {{kind: noop}}\n    <<: {{desc: x}} #! yaml-merge-key\n",
    f"{_HEAD}workflow:\n  - step: start\n    tool: {{kind: noop, data: !!python/object x}} #! yaml-tag\n",
    f"{_HEAD}workflow:\n  - step: start\n   tool: {{kind: noop}} #! yaml-syntax\n",
    f"{_HEAD}workflow:\n  - step: start\n    tool: {{kind: noop, data: {{{{ workload.n }}}}}} #! yaml-key\n",
    f"{_HEAD}workflow: {{start: {{tool: {{kind: noop}}}}}} #! wrong-type\n",
    f"{_HEAD}workflow: [] #! missing-key\n",
    "workflow: #! missing-key\n  - step: start\n    tool: {kind: noop}\n",
    "metadata: {name: } #! wrong-type\nworkflow:\n  - step: start\n    tool: {kind: noop}\n",
]  # fmt: skip
