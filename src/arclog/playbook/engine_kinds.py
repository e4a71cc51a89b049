"""The kinds without a tool, as data: the server handles them, or the worker itself (`assert`)."""

from __future__ import annotations

from arclog.model.config.kinds import KindSpec
from arclog.model.data.shapes import LONGEST_S, Field

ENGINE_KINDS: dict[str, KindSpec] = {
    kind.name: kind
    for kind in (
        KindSpec(
            "wait",
            "Waits for a time or a signal without holding a worker.",
            fields=(
                Field("for_s", "number", "How long, seconds.", template=True, minimum=0, maximum=LONGEST_S),
                Field("until", "string", "An instant, RFC 3339.", template=True),
                Field("signal", "string", "Name of a signal.", template=True),
                Field(
                    "timeout_s",
                    "number",
                    "With `signal`: maximum time to wait, in seconds.",
                    template=True,
                    exclusive_min=0,
                    maximum=LONGEST_S,
                ),
            ),
            runs_on="engine",
            auth=(),
            one_of=(("for_s", "until", "signal"),),
        ),
        KindSpec(
            "approval",
            "Waits for an approval or a rejection.",
            fields=(
                Field("prompt", "string", "Text of the request for approval.", template=True),
                Field(
                    "approvers",
                    "list",
                    "Roles or callers that can decide.",
                    items=Field("approver", "string"),
                    template=True,
                ),
                Field(
                    "timeout_s",
                    "number",
                    "Maximum time to wait, in seconds.",
                    template=True,
                    exclusive_min=0,
                    maximum=LONGEST_S,
                ),
            ),
            runs_on="engine",
            auth=(),
        ),
        KindSpec(
            "assert",
            "Fails unless its conditions hold.",
            fields=(
                Field(
                    "that",
                    "string|boolean|list",
                    "One condition or a list of them: `{{ expr }}`, a bare expression or a boolean.",
                    required=True,
                    items=Field("condition", "condition"),
                ),
                Field(
                    "message", "string", "Message of the error; rendered if a condition does not hold.", template=True
                ),
                Field("code", "string", "The error's code.", default="ASSERT"),
            ),
            effectful=False,
            at_once=True,
            runs_on="pipeline",
            auth=(),
        ),
        KindSpec(
            "playbook",
            "Runs another playbook and returns its result.",
            fields=(
                Field("path", "string", "Catalog path.", template=True),
                Field("file", "string", "File, relative to this playbook; registered when the run starts."),
                Field("version", "string|integer", "Catalog version. Default: the newest.", template=True),
                Field("args", "object", "Workload of the child, merged over its defaults.", template=True),
                Field("wait", "boolean", "false: continue once the child has started.", default=True),
            ),
            runs_on="engine",
            auth=(),
            helper="child",
            helper_fields=("execution_id", "state"),
            one_of=(("path", "file"),),
        ),
    )
}
