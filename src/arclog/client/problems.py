"""What a server's refusal means here: `application/problem+json` becomes the exception that the server raised."""

from __future__ import annotations

from typing import Any

import msgspec

from arclog.model import errors

#: title of a problem → the exception of the same name
_BY_TITLE: dict[str, type[errors.ArclogError]] = {
    kind.__name__: kind
    for kind in (
        errors.RequestRejected,
        errors.NotFound,
        errors.Unauthenticated,
        errors.NotAllowed,
        errors.RequestTooLarge,
        errors.EventTooLarge,
        errors.RunEnded,
        errors.DoesNotFit,
        errors.StaleFence,
        errors.Conflict,
        errors.StoreUnavailable,
        errors.StoreError,
        errors.ResultUnavailable,
        errors.ResultTooLarge,
        errors.ResultStoreAway,
        errors.SecretUnavailable,
        errors.LeaseLost,
        errors.SettingsError,
        errors.InvariantBroken,
        errors.ExpressionError,
    )
}
_BY_STATUS: dict[int, type[errors.ArclogError]] = {401: errors.Unauthenticated, 403: errors.NotAllowed}
_MOST_SHOWN = 300


def error_of(status: int, content_type: str, body: bytes, where: str) -> errors.ArclogError:
    """The exception for an answer that is not a success; `where` says which server was asked for what."""
    problem = _problem(content_type, body)
    if problem is None:
        return _no_problem(status, body, where)
    title, detail = str(problem.get("title", "")), str(problem.get("detail", ""))
    if title == "PlaybookError":
        return _playbook_error(problem, detail)
    if title == "InputsRefused":
        return errors.InputsRefused(detail, _faults(problem.get("faults")))
    if title == "ReportGap":
        gap = errors.ReportGap(0, int(problem.get("expected") or 0), 0)
        gap.args = (detail,)
        return gap
    if title == "InternalError":
        return errors.ServerFailed(f"{where}: {detail}")
    kind = _BY_TITLE.get(title) or _BY_STATUS.get(status)
    if kind is not None:
        return kind(detail or title)
    if status >= 500 or status == 429:
        return errors.ServerUnavailable(f"{where}: {detail or title} ({status})")
    return errors.RequestRejected(f"{where}: {detail or title} ({status})")


def _problem(content_type: str, body: bytes) -> dict[str, Any] | None:
    if not content_type.partition(";")[0].strip().endswith("json"):
        return None
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) and "title" in found else None


def _no_problem(status: int, body: bytes, where: str) -> errors.ArclogError:
    """Something between, or something else than arclog, answered."""
    text = " ".join(body[: 4 * _MOST_SHOWN].decode("utf-8", "replace").split())[:_MOST_SHOWN]
    said = f": {text}" if text else ""
    if status in (401, 403):
        return _BY_STATUS[status](f"{where} answers {status}{said}")
    return errors.ServerUnavailable(f"{where} answers {status}, not as an arclog server does{said}")


def _faults(given: Any) -> list[tuple[str, str]]:
    found = given if isinstance(given, list) else []
    return [(str(each.get("path", "")), str(each.get("message", ""))) for each in found if isinstance(each, dict)]


def _playbook_error(problem: dict[str, Any], detail: str) -> errors.ArclogError:
    try:
        findings = msgspec.convert(problem.get("findings"), list[errors.Finding])
    except msgspec.ValidationError:
        return errors.RequestRejected(detail)
    return errors.PlaybookError(findings, file=str(problem.get("file") or ""))
