"""The outcome of one attempt: ok or error. A task's failure is data, not an exception."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from arclog.model.errors import ResultStoreAway, ResultTooLarge, ResultUnavailable
from arclog.model.refs import published_form

OK = "ok"
ERROR = "error"

#: All error kinds, with the default of `retryable`.
ERROR_KINDS: dict[str, bool] = {
    "connection": True,
    "timeout": True,
    "rate_limit": True,
    "auth": False,
    "not_found": False,
    "client_error": False,
    "server_error": True,
    "exception": False,
    "limit": False,
    "killed": True,
    "sql": False,
    "constraint": False,
    "serialization": True,
    "template": False,
    "config": False,
    "conflict": False,
    "child": False,
    "cancelled": False,
    "poison": False,
    "result": False,
    "internal": False,
}


class TaskError(Struct, frozen=True, omit_defaults=True):
    """The error of a task, a step or a run."""

    kind: str
    message: str
    code: str | None = None
    retryable: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "message": self.message, "code": self.code, "retryable": self.retryable}


def error(kind: str, message: str, *, code: str | None = None, retryable: bool | None = None) -> TaskError:
    """Return a TaskError of a known kind; `retryable` defaults to that of the kind."""
    return TaskError(kind, message, code, ERROR_KINDS[kind] if retryable is None else retryable)


def is_consequence(problem: Mapping[str, Any]) -> bool:
    """Return whether an error only states that something else ended the work. A rejected approval is itself a cause."""
    return problem.get("kind") == "cancelled" and problem.get("code") != "REJECTED"


def as_error(problem: Any, message: str) -> dict[str, Any]:
    """Return an error from outside, a map or plain text, with all required fields. Its kind may be unknown."""
    fields = problem if isinstance(problem, Mapping) else {"message": problem} if problem else {}
    kind = str(fields.get("kind") or "exception")
    retryable = fields.get("retryable")
    return {
        **fields,
        "kind": kind,
        "message": str(fields.get("message") or message),
        "code": None if fields.get("code") is None else str(fields["code"]),
        "retryable": retryable if isinstance(retryable, bool) else ERROR_KINDS.get(kind, False),
    }


def result_error(problem: ResultUnavailable) -> TaskError:
    """Return the error for data that could not be stored or read."""
    kind = "limit" if isinstance(problem, ResultTooLarge) else "result"
    return error(kind, str(problem), retryable=isinstance(problem, ResultStoreAway))


class Outcome(Struct, omit_defaults=True):
    """The result of one attempt of a tool."""

    status: str = OK
    #: What the tool returned.
    result: Any = None
    #: Key of the payload inside `result` ('' for the result itself), e.g. 'data' for http, 'rows' for SQL.
    data_at: str = ""
    #: The answer of `ResultWriter.commit` if the payload was streamed into the result store; `result` does not contain
    #: it.
    stored: Any = None
    error: TaskError | None = None
    meta: dict[str, Any] = {}
    #: The per-kind helper, e.g. {'sh': {'exit_code': 1}}.
    helper: dict[str, dict[str, Any]] = {}
    #: The files that the task's `outputs` names, in the result store: name → `ports.results.StoredFile`.
    files: dict[str, Any] = {}

    def as_record(self) -> dict[str, Any]:
        """Return the compact form for events; `widened` adds the derived keys."""
        record: dict[str, Any] = {"status": self.status}
        if self.result is not None:
            record["result"] = self.result
        if self.data_at:
            record["data_at"] = self.data_at
        if self.error is not None:
            record["error"] = self.error.as_dict()
        if self.meta:
            record["meta"] = self.meta
        if self.helper:
            record.update(self.helper)
        return record


def failed(problem: TaskError, **helper: dict[str, Any]) -> Outcome:
    """Return an error outcome."""
    return Outcome(status=ERROR, error=problem, helper=helper)


def data_of(record: Mapping[str, Any]) -> Any:
    """Return the payload of a compact outcome record."""
    result = record.get("result")
    where = record.get("data_at")
    if not where:
        return result
    return result.get(where) if isinstance(result, dict) else None


def widened(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record with every key of an outcome in templates: status, result, data, error, meta and helpers."""
    wide = {"status": record["status"], "result": record.get("result"), "data": data_of(record)}
    wide["error"] = record.get("error")
    wide["meta"] = record.get("meta") or {}
    for key, value in record.items():
        if key not in wide and key != "data_at":
            wide[key] = value
    if "result_ref" in wide:
        wide["result_ref"] = published_form(wide["result_ref"])
    if isinstance(files := wide.get("files"), dict):
        wide["files"] = {name: published_form(ref) for name, ref in files.items()}
    return wide
