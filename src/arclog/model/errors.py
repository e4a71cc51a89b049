"""Every exception arclog raises on purpose.

    ArclogError
    ├── PlaybookError        the author's YAML; carries every finding with its place
    ├── ExpressionError      a template; carries its place in the playbook
    ├── RequestRejected      a request that can never succeed as sent
    │   ├── NotFound
    │   ├── InputsRefused    a workload that does not fit the playbook's inputs; carries every fault
    │   ├── Unauthenticated  nobody can tell who asks
    │   ├── NotAllowed       somebody asks for what only others may do
    │   ├── TooManyRequests  the same may succeed later; carries when
    │   ├── RequestTooLarge  a limit of the server; names the setting
    │   ├── EventTooLarge    an event that is larger than its run allows
    │   ├── RunEnded         a run that has ended takes no more signals
    │   ├── EventDiffers     an event id came again with other content
    │   ├── StaleFence       a worker speaks for a command that it no longer holds
    │   │   └── NotHolder    a caller speaks for a command that another credential holds
    │   └── ReportGap        a report came out of order; carries the expected n
    ├── StoreError
    │   ├── StoreUnavailable transient or environmental: disk full, locked, server gone
    │   │   └── NewerLog     a log that only a newer arclog can continue with
    │   └── Conflict         another writer moved the execution's head: reload and decide again
    ├── BusUnavailable       a bus that cannot be reached, or did not take what it was given
    ├── ServerUnavailable    a server that cannot be reached, or does not answer as one
    │   └── ServerFailed     it has a bug for what it was asked
    ├── ResultUnavailable    data that cannot be stored, or stored data that is missing or changed
    │   ├── ResultTooLarge   a limit of the result store
    │   └── ResultStoreAway  the result store does not answer; the same may succeed later
    ├── SecretUnavailable    a credential that is not available; never says a secret
    ├── RunFailed            a run that a client waited for failed or was cancelled; carries its summary
    ├── LeaseLost            this worker's own lease ended while it worked
    ├── SettingsError        a setting that cannot be used
    │   └── MissingExtra     an optional dependency that is not installed; names the extra
    └── InvariantBroken      our bug: the execution is quarantined, others go on

A task's failure is data (`Outcome.error`), never one of these. Every message says what, where and what to do.
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
    """One thing `check` has to say about a playbook."""

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
    """Base of every error that arclog raises on purpose."""


class PlaybookError(ArclogError):
    """A playbook that cannot be run, with all that is wrong with it."""

    def __init__(self, findings: list[Finding], source: str = "", file: str = "") -> None:
        self.findings = findings
        self.source = source
        self.file = file
        super().__init__("; ".join(str(finding) for finding in findings))


class ExpressionError(ArclogError):
    """A template that cannot be compiled or evaluated."""

    def __init__(self, message: str, at: Position = NOWHERE, source: str = "") -> None:
        self.message = message
        self.at = at
        self.source = source
        place = f" at {at}" if at.line else ""
        text = f" in {_shortened(source)!r}" if source else ""
        super().__init__(f"{message}{text}{place}")


class RequestRejected(ArclogError):
    """A request that can never succeed as it was sent."""


class Unauthenticated(RequestRejected):
    """Nobody can tell who asks: no credential, or one that is wrong, expired or revoked."""


class NotAllowed(RequestRejected):
    """Somebody asks for what only others may do."""


class TooManyRequests(RequestRejected):
    """The caller must wait; the same request may succeed later."""

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class NotFound(RequestRejected):
    """The named thing does not exist for this caller."""


class InputsRefused(RequestRejected):
    """The workload does not fit the playbook's typed inputs; `faults` has all that is wrong: path and message."""

    def __init__(self, message: str, faults: Sequence[tuple[str, str]] = ()) -> None:
        self.faults = tuple(faults)
        super().__init__(message)


class RequestTooLarge(RequestRejected):
    """More was sent than the server takes at a time; the message names the setting."""


class EventTooLarge(RequestRejected):
    """An event is larger than the limit of its run (`limits.max_payload_bytes`); it is not stored."""


class RunEnded(RequestRejected):
    """The run has ended: it takes no more signals."""


class DoesNotFit(RequestRejected):
    """The recorded state of a run has no place in the playbook that shall continue with it."""


class EventDiffers(RequestRejected):
    """An event with this id was accepted before, and it said something else."""


class StaleFence(RequestRejected):
    """The command is held by somebody else, or is over; drop the work."""


class NotHolder(StaleFence):
    """The command belongs to another credential. A server keeps the attempt in its audit."""


class ReportGap(RequestRejected):
    """A report arrived out of order."""

    def __init__(self, command_id: int, expected: int, got: int) -> None:
        self.expected = expected
        super().__init__(f"report {got} of command {command_id} came before report {expected}; send {expected} first")


class StoreError(ArclogError):
    """The log could not take or give what was asked."""


class StoreUnavailable(StoreError):
    """The store cannot be written or read now; nothing was half-written."""


class NewerLog(StoreUnavailable):
    """A newer arclog wrote to this execution what this one does not understand: it leaves the run alone."""


class Poisoned(NewerLog):
    """A run whose log is not read any more: the process died of it twice. It is left alone as well."""


class Conflict(StoreError):
    """The execution's head moved: somebody else appended first."""


class BusUnavailable(ArclogError):
    """A bus cannot be reached, or did not take what it was given; the same may succeed later."""


class ServerUnavailable(ArclogError):
    """A server that cannot be reached, is overwhelmed, or does not answer as an arclog server does."""


class ServerFailed(ServerUnavailable):
    """A server has a bug for what it was asked; the same again comes to the same, unless another one is asked."""


class ResultUnavailable(ArclogError):
    """Data that cannot be stored, or stored data that is missing or changed."""


class ResultTooLarge(ResultUnavailable):
    """The data is larger than a limit of the result store; the message names the setting."""


class ResultStoreAway(ResultUnavailable):
    """The result store cannot be reached now, or did not answer in time; nothing was half-stored."""


class SecretUnavailable(ArclogError):
    """A credential that is not available; the message names the keychain entry and the remedy, never a value."""

    def __init__(self, message: str, *, retryable: bool = False, kind: str = "auth") -> None:
        #: the same may work a little later
        self.retryable = retryable
        #: of the task's error: auth, config or connection
        self.kind = kind
        super().__init__(message)


class RunFailed(ArclogError):
    """A run that a client started and waited for has failed or was cancelled.

    `run` is its `ports.api.Summary`: state, error, cause, problems, steps.
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
    """This worker's lease ended; its result would no longer be accepted."""


class SettingsError(ArclogError):
    """A setting is unknown, malformed or out of its range."""


class MissingExtra(SettingsError):
    """An optional dependency is not installed; the message names the extra that brings it."""

    def __init__(self, message: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{message}: pip install 'arclog[{extra}]'")


class InvariantBroken(ArclogError):
    """A rule that arclog itself must keep does not hold; please report it with the execution's log."""


def _shortened(source: str) -> str:
    one_line = " ".join(source.split())
    return one_line if len(one_line) <= 120 else one_line[:117] + "..."
