"""All exceptions that arclog raises intentionally.

    ArclogError
    ├── PlaybookError        errors in a playbook; carries every finding with its location
    ├── ExpressionError      a template; carries its location in the playbook
    ├── RequestRejected      a request that can never succeed in this form
    │   ├── NotFound
    │   ├── InputsRefused    a workload that does not fit the playbook's inputs; carries every fault
    │   ├── Unauthenticated  missing or invalid credentials
    │   ├── NotAllowed       the caller lacks a permission
    │   ├── TooManyRequests  the same request may succeed later; carries when
    │   ├── RequestTooLarge  a limit of the server; names the setting
    │   ├── EventTooLarge    an event that is larger than its run allows
    │   ├── RunEnded         a run that has ended accepts no more signals
    │   ├── DoesNotFit       the recorded state of a run does not fit the playbook of its fork or retry
    │   ├── EventDiffers     an event id was repeated with other content
    │   ├── StaleFence       a worker reports on a command that it no longer holds
    │   │   └── NotHolder    a caller reports on a command that another credential holds
    │   └── ReportGap        a report arrived out of order; carries the expected n
    ├── StoreError
    │   ├── StoreUnavailable transient or environmental: disk full, locked, server gone
    │   │   └── NewerLog     a log that only a newer arclog can continue
    │   │       └── Poisoned a run in quarantine
    │   └── Conflict         the request conflicts with the current state of the store
    ├── BusUnavailable       a bus that cannot be reached, or rejected a message
    ├── ServerUnavailable    a server that cannot be reached, or does not answer like one
    │   └── ServerFailed     the server failed because of a bug
    ├── ResultUnavailable    data that cannot be stored, or stored data that is missing or changed
    │   ├── ResultTooLarge   a limit of the result store
    │   └── ResultStoreAway  the result store does not answer; the same request may succeed later
    ├── SecretUnavailable    a credential that is not available; never contains a secret
    ├── RunFailed            a run that a client waited for failed or was cancelled; carries its summary
    ├── LeaseLost            this worker's lease expired while it worked
    ├── SettingsError        a setting that cannot be used
    │   └── MissingExtra     an optional dependency that is not installed; names the extra
    └── InvariantBroken      a bug in arclog: the execution is quarantined, others continue

A task's failure is data (`Outcome.error`), never an exception. Every message says what happened, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct


class Position(Struct, frozen=True, order=True):
    """A place in a playbook file; lines and columns count from 1. Line 0 means unknown."""

    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.line}:{self.column}" if self.line else "?"


NOWHERE = Position()


class Finding(Struct, frozen=True):
    """A problem that `check` found in a playbook."""

    code: str
    message: str
    at: Position = NOWHERE
    #: error (the playbook cannot run) | warning | info
    severity: str = "error"
    hint: str = ""

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.at}: {self.severity}[{self.code}] {self.message}{hint}"


class ArclogError(Exception):
    """Base class of all errors that arclog raises intentionally."""


class PlaybookError(ArclogError):
    """The playbook has errors; `findings` has all of them."""

    def __init__(self, findings: list[Finding], source: str = "", file: str = "") -> None:
        self.findings = findings
        self.source = source
        self.file = file
        super().__init__("; ".join(str(finding) for finding in findings))


class ExpressionError(ArclogError):
    """A template cannot be compiled or evaluated."""

    def __init__(self, message: str, at: Position = NOWHERE, source: str = "") -> None:
        self.message = message
        self.at = at
        self.source = source
        place = f" at {at}" if at.line else ""
        one_line = shortened(" ".join(source.split()), 120, "...")
        text = f" in {one_line!r}" if source else ""
        super().__init__(f"{message}{text}{place}")


class RequestRejected(ArclogError):
    """The request cannot succeed in this form."""


class Unauthenticated(RequestRejected):
    """The credentials are missing, wrong, expired or revoked."""


class NotAllowed(RequestRejected):
    """The caller is not allowed to do this."""


class TooManyRequests(RequestRejected):
    """Too many requests; the same request may succeed later."""

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class NotFound(RequestRejected):
    """The object does not exist, or the caller cannot see it."""


class InputsRefused(RequestRejected):
    """The workload does not fit the playbook's typed inputs; `faults` has the path and message of each problem."""

    def __init__(self, message: str, faults: Sequence[tuple[str, str]] = ()) -> None:
        self.faults = tuple(faults)
        super().__init__(message)


class RequestTooLarge(RequestRejected):
    """The request exceeds a limit of the server; the message names the setting."""


class EventTooLarge(RequestRejected):
    """An event is larger than the limit of its run (`limits.max_payload_bytes`); it is not stored."""


class RunEnded(RequestRejected):
    """The run has ended and accepts no more signals."""


class DoesNotFit(RequestRejected):
    """The recorded state of a run does not fit the playbook that would continue it."""


class EventDiffers(RequestRejected):
    """An event with this id was accepted before, with other content."""


class StaleFence(RequestRejected):
    """Another worker holds the command, or the command is over; drop the work."""


class NotHolder(StaleFence):
    """Another credential holds the command. The server records the attempt in its audit log."""


class ReportGap(RequestRejected):
    """A report arrived out of order."""

    def __init__(self, command_id: int, expected: int, got: int) -> None:
        self.expected = expected
        super().__init__(f"report {got} of command {command_id} came before report {expected}; send {expected} first")


class StoreError(ArclogError):
    """The log could not be read or written."""


class StoreUnavailable(StoreError):
    """The store cannot be read or written now; nothing was written partially."""


class NewerLog(StoreUnavailable):
    """A newer arclog wrote events to this run that this release does not understand. The run is not continued."""


class Poisoned(NewerLog):
    """The run is in quarantine, because the process died on it twice. Its log is not read until it is resumed."""


class Conflict(StoreError):
    """The request conflicts with the current state: an idempotency key was used for another request, an object with this
    name exists, or another writer appended to the execution first.
    """


class BusUnavailable(ArclogError):
    """The bus cannot be reached, or did not accept a message; the same may succeed later."""


class ServerUnavailable(ArclogError):
    """The server cannot be reached, is overloaded, or does not answer like an arclog server."""


class ServerFailed(ServerUnavailable):
    """The server failed because of a bug. The same request is likely to fail again."""


class ResultUnavailable(ArclogError):
    """A result cannot be stored, or a stored result is missing or damaged."""


class ResultTooLarge(ResultUnavailable):
    """The data is larger than a limit of the result store; the message names the setting."""


class ResultStoreAway(ResultUnavailable):
    """The result store cannot be reached, or did not answer in time; nothing was stored partially."""


class SecretUnavailable(ArclogError):
    """A secret is not available. The message names the keychain entry and the remedy, and never contains a value."""

    def __init__(self, message: str, *, retryable: bool = False, kind: str = "auth") -> None:
        #: whether the same may succeed later
        self.retryable = retryable
        #: kind of the task's error: auth, config or connection
        self.kind = kind
        super().__init__(message)


class RunFailed(ArclogError):
    """A run that a client started and waited for has failed or was cancelled.

    `run` is the summary of the run: state, error, cause, problems, steps.
    """

    def __init__(self, run: Any) -> None:
        self.run = run
        cause, error = run.cause, run.error or {}
        place = [f"step {cause.step}"] if cause is not None and cause.step else []
        place += [f"item {cause.iteration}"] if cause is not None and cause.iteration else []
        place += [f"task {cause.task}"] if cause is not None and cause.task else []
        message = f"{cause.kind}: {cause.message}" if cause is not None else str(error.get("message") or "")
        where = f"{', '.join(place)}: " if place else ""
        line = f" ({cause.file}:{cause.line})" if cause is not None and cause.file and cause.line else ""
        super().__init__(f"run {run.execution_id} {run.state.lower()}: {where}{message}{line}")


class LeaseLost(ArclogError):
    """This worker's lease has expired; its result would be rejected."""


class SettingsError(ArclogError):
    """A setting is unknown, malformed or out of its range."""


class MissingExtra(SettingsError):
    """An optional dependency is not installed; the message names the extra that installs it."""

    def __init__(self, message: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{message}: pip install 'arclog[{extra}]'")


class InvariantBroken(ArclogError):
    """A bug in arclog: an internal invariant does not hold. Please report it with the log of the execution."""


def shortened(text: str, limit: int, mark: str = "…") -> str:
    """Return the text, cut to `limit` characters. A cut text ends with the mark."""
    return text if len(text) <= limit else text[: limit - len(mark)] + mark
