"""What of a state decisions and readers depend on, as plain data that does not change with the code's own records."""

from __future__ import annotations

from typing import Any

from arclog.core.transitions.state import State


def view(state: State) -> dict[str, Any]:
    """The facts of a state that a log of an older release must still lead to."""
    return {
        "status": state.status,
        "workflow": state.workflow,
        "head": state.head,
        "ctx": state.ctx,
        "latest": state.latest,
        "results": state.results,
        "error": state.error,
        "result": state.result,
        "runs": state.runs,
        "open": sorted(state.open),
        "tokens": sorted(state.tokens),
        "tokens_made": state.tokens_made,
        "commands": {str(command.id): [command.fence, command.report] for command in state.commands.values()},
        "waits": sorted(state.waits),
        "timers": state.timers,
        "pipelines": {
            f"{key} {path}": [pipeline.at, pipeline.attempt, pipeline.in_flight, pipeline.ctx, pipeline.prev]
            for key, step_run in state.open.items()
            for path, pipeline in step_run.open_pipelines()
        },
    }
