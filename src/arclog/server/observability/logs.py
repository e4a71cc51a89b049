"""A server's own log: JSON lines (or plain lines at a terminal) for operators, with ids as fields.

Messages that the engine and the worker log with the standard library are included; where a message names a run, a
worker (`run %s`, `execution %s`, `worker %s`) or a schedule, the id becomes a field. The configuration is restored when
the server stops.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import structlog

from arclog.core.transitions.state import State
from arclog.engine.commits.hints import Hints
from arclog.model.config.settings import Settings
from arclog.model.events import TERMINAL, Event

log = logging.getLogger("arclog.server")

_CONVERSION = re.compile(r"(?:(\w+) )?%[sdg]")
_FIELDS = {
    "execution": "execution_id",
    "run": "execution_id",
    "child": "execution_id",
    "worker": "worker_id",
    "schedule": "schedule",
}
_ID = re.compile(r"[\w.:-]{1,200}")


@contextmanager
def operators_log(settings: Settings, stream: TextIO | None = None) -> Iterator[None]:
    """Write the log of everything below `arclog` while the server runs."""
    target = sys.stderr if stream is None else stream
    chosen = settings.text("server.log_format")
    plain = chosen == "plain" or (chosen == "auto" and target.isatty())
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.ExtraAdder(),
    ]
    ends: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if plain:
        # If `rich` is installed, tracebacks would contain the values of variables, including passwords.
        ends.append(structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback))
    else:
        ends += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    handler = logging.StreamHandler(target)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=ends, foreign_pre_chain=shared))
    handler.addFilter(_name_ids)
    root = logging.getLogger("arclog")
    before = root.level
    root.addHandler(handler)
    root.setLevel(settings.text("server.log_level").upper())
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def _name_ids(record: logging.LogRecord) -> bool:
    """Ids that a message names, as fields of the record."""
    if isinstance(record.args, tuple) and isinstance(record.msg, str):
        for match, value in zip(_CONVERSION.finditer(record.msg), record.args, strict=False):
            field = _FIELDS.get(match.group(1) or "")
            if field and not hasattr(record, field) and _ID.fullmatch(str(value)):
                setattr(record, field, str(value))
    return True


def log_runs(hints: Hints) -> None:
    """Log when each run begins and ends, and when a worker loses one of its commands."""
    hints.on_committed.append(_committed)


def _committed(state: State, events: Sequence[Event]) -> None:
    for event in events:
        if event.type == "playbook.execution.requested":
            _log_event(logging.INFO, "run requested", state, path=event.payload.get("path"), scope=state.scope)
        elif event.type in TERMINAL:
            error = state.error or {}
            level = logging.INFO if state.status == "COMPLETED" else logging.WARNING
            _log_event(level, "run ended", state, state=state.status, error=error.get("message"))
        elif event.type == "command.failed" or (
            event.type == "command.issued" and event.payload.get("reason") == "lease_lost"
        ):
            problem = event.payload.get("error") or {}
            why = {"command_id": str(event.command_id), "step": event.step, "error": problem.get("message")}
            worker_id = event.worker_id or event.payload.get("worker_id")
            _log_event(
                logging.WARNING, "command failed" if problem else "lease lost", state, **why, worker_id=worker_id
            )


def _log_event(level: int, text: str, of: State, **more: Any) -> None:
    fields = {key: value for key, value in more.items() if value}
    log.log(level, text, extra={"execution_id": str(of.execution_id), **fields})
