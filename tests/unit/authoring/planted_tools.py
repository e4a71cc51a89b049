"""Mistakes of authors who come from Airflow, Kestra, Temporal, Prefect, Argo or GitHub Actions, with a word of the remedy.

The line of each mistake ends in `#! code`, as in `planted`.
"""

from __future__ import annotations

_HEAD = "metadata: {name: planted}\n"
_START = "workflow:\n  - {step: start, tool: {kind: noop}}\n"


def _root(*lines: str) -> str:
    return _HEAD + "\n".join(lines) + "\n" + _START


def _executor(*lines: str) -> str:
    return _root("executor:", "  spec:", *(f"    {line}" for line in lines))


def _step(*lines: str) -> str:
    return f"{_HEAD}workflow:\n  - step: start\n    tool: {{kind: noop}}\n" + "".join(f"    {line}\n" for line in lines)


def _tool(line: str) -> str:
    return f"{_HEAD}workflow:\n  - step: start\n    tool: {line}\n"


def _data(template: str) -> str:
    return _tool(f'{{kind: noop, data: "{{{{ {template} }}}}"}} #! unknown-name')


def _python(*code: str) -> str:
    body = "".join(f"        {line}\n" for line in code)
    return f"{_HEAD}workflow:\n  - step: start\n    tool:\n      kind: python\n      code: |\n{body}"


FROM_OTHER_TOOLS: list[tuple[str, str]] = [
    # --- anybody
    (_tool("{kind: wait, until: '2027-01-01T00:00:00Z', seconds: 5} #! unknown-key"), "for_s: SECONDS"),
    # --- GitHub Actions
    ("jobs: {build: {steps: []}} #! unknown-key\n", "workflow:"),
    ("on: push #! unknown-key\nmetadata: {name: p}\n" + _START, "schedules"),
    (_step("uses: actions/checkout@v4 #! unknown-key"), "tool:"),
    (_step("continue-on-error: true #! unknown-key"), "do: continue"),
    (_step("timeout-minutes: 5 #! unknown-key"), "timeout"),
    (_step("strategy: {matrix: {n: [1, 2]}} #! unknown-key"), "loop:"),
    (_step("runs-on: ubuntu-latest #! unknown-key"), "pool"),
    (_step("working-directory: app #! unknown-key"), "workdir"),
    (_tool('{kind: shell, command: "echo ${{ env.X }}"} #! unknown-name'), "workload"),
    (_data("steps.a.outputs.x"), "{{ STEP.data }}"),
    (_data("secrets.TOKEN"), "keychain"),
    (_data("github.sha"), "workload"),
    (_data("needs.build.outputs.x"), "{{ STEP.data }}"),
    (_data("matrix.os"), "iter."),
    # --- Kestra
    ("id: hello #! unknown-key\ntasks: []\n", "metadata"),
    ("namespace: dev #! unknown-key\ntasks: []\n", "metadata"),
    (_root("errors: [{step: x}] #! unknown-key"), "on_failure"),
    (_tool("{kind: io.kestra.plugin.scripts.python.Script, code: x} #! unknown-kind"), "python"),
    (_executor("inputs:", "  n: {type: STRING} #! bad-value"), "string"),
    (_executor("inputs:", "  n: {type: INT} #! bad-value"), "integer"),
    (_executor("inputs: [{id: n, type: INT}] #! wrong-type"), "{n: {type:"),
    (_data("inputs.n"), "workload.n"),
    (_data("outputs.start.value"), "{{ STEP.data }}"),
    (_data("execution.id"), "execution_id"),
    (_data("taskrun.value"), "iter."),
    (_data("trigger.date"), "run.started_at"),
    (_tool("{kind: http, url: https://x, spec: {retry: {maxAttempt: 3}}} #! unknown-key"), "attempts"),
    (_tool("{kind: http, url: https://x, spec: {retry: {interval: 3}}} #! unknown-key"), "delay"),
    # --- Airflow
    ("dag_id: x #! unknown-key\n" + _HEAD + _START, "metadata"),
    (_root("schedule_interval: '@daily' #! unknown-key"), "schedules"),
    (_root("default_args: {retries: 1} #! unknown-key"), "executor"),
    (_data("ds"), "run.started_at"),
    (_data("execution_date"), "run.started_at"),
    (_data("params.x"), "workload.x"),
    (_data("var.value.key"), "workload"),
    (_data("ti.x"), "{{ STEP.data }}"),
    (_data("dag_run.conf"), "workload"),
    (_tool("{kind: noop, data: \"{{ ti.xcom_pull(task_ids='a') }}\"} #! template-syntax"), "STEP.data"),
    (_step("spec: {trigger_rule: all_done} #! unknown-key"), "join"),
    (_step("spec: {join: all_success} #! bad-value"), "all_ok"),
    (_step("downstream: [b] #! unknown-key"), "arcs"),
    (_tool("{kind: noop, spec: {retry: {attempts: 3, retry_delay: 5}}} #! unknown-key"), "mean delay"),
    (_tool("{kind: bash, command: echo} #! unknown-kind"), "shell"),
    (_tool("{kind: BashOperator, command: echo} #! unknown-kind"), "shell"),
    (_tool("{kind: PythonOperator, code: x} #! unknown-kind"), "python"),
    (_executor("email_on_failure: true #! unknown-key"), "on_failure"),
    (_executor("on_failure: ops@example.org #! wrong-type"), "email"),
    (_executor("max_active_runs: 1 #! unknown-key"), "concurrency"),
    (_tool("{kind: noop, data: \"{{ run.started_at | strftime('%Y') }}\"} #! template-syntax"), "date_format"),
    (_tool("{kind: noop, data: \"{{ run.started_at | date('yyyy') }}\"} #! template-syntax"), "date_format"),
    # --- Temporal, Prefect, Argo, Step Functions
    (_tool("{kind: noop, spec: {start_to_close_timeout: 5}} #! unknown-key"), "timeout"),
    (_tool("{kind: noop, spec: {retry: {maximum_attempts: 5}}} #! unknown-key"), "mean attempts"),
    (_tool("{kind: noop, spec: {retry: {initial_interval: 1}}} #! unknown-key"), "mean delay"),
    (_tool("{kind: noop, spec: {retry: {maximum_interval: 9}}} #! unknown-key"), "max_delay"),
    (_tool("{kind: noop, spec: {retry: {backoff_coefficient: 2}}} #! unknown-key"), "backoff"),
    (_tool("{kind: sleep, seconds: 5} #! unknown-kind"), "wait"),
    (_tool("{kind: subflow, flow: x} #! unknown-kind"), "playbook"),
    (_tool("{kind: slack, text: hi} #! unknown-kind"), "http"),
    (_step("withItems: [1, 2] #! unknown-key"), "loop:"),
    (_step("wait_for: [a] #! unknown-key"), "join: all"),
    (_step("cache_key_fn: x #! unknown-key").replace("cache_key_fn", "next_step"), "arcs"),
    (_executor("inputs:", "  token: {type: password} #! bad-value"), "secret"),
    # --- python
    (_python("def run(n): #! python-no-result", "    return n"), "def main"),
]
