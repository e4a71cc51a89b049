"""Requests of a worker to its server, which survive outages and failures of the server.

Every request of a worker may be repeated, so it is sent until it is answered or its caller gives up. An outage and its
end are logged once; each kind of failure is logged once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from arclog.client.calls import address_of
from arclog.client.connection import Connection
from arclog.drivers.backoff import retry
from arclog.drivers.http.direct import Answer
from arclog.model.errors import (
    ArclogError,
    Conflict,
    InvariantBroken,
    ServerFailed,
    ServerUnavailable,
    StoreUnavailable,
)
from arclog.operations.operation import Operation

log = logging.getLogger("arclog.worker")

#: Temporary errors, except ServerFailed.
PASSING = (ServerUnavailable, StoreUnavailable, Conflict)

A = TypeVar("A")
T = TypeVar("T")

#: The body of a request, or a function that creates it from the number of failures.
Body = Struct | Callable[[int], Struct] | None


class Placed(NamedTuple, Generic[A]):
    """A response, and the process that sent it."""

    value: A
    #: '' if it has no name
    server: str
    #: other processes, which were reached first
    others: tuple[str, ...] = ()


class Transport:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._lost = False
        #: failures that were logged since the last answer
        self._logged: set[str] = set()
        #: with several servers, the time after which the next one is tried
        self.limit_s = math.inf

    async def call(
        self,
        operation: Operation[A],
        params: Struct | None = None,
        body: Body = None,
        *,
        wait_s: float = 0.0,
        patience_s: float = math.inf,
        answers: tuple[type[ArclogError], ...] = (ArclogError,),
        tries: float = math.inf,
    ) -> A:
        """Return the response of a server, which may take `wait_s`. Errors that are `answers` are raised at once.
        Others are failures of the server, such as bugs; another server, or the same one later, may succeed. They are
        raised after `tries` attempts.
        """
        raw = await self.raw(
            operation, params, body, wait_s=wait_s, patience_s=patience_s, answers=answers, tries=tries
        )
        return decoded(raw, operation)

    async def call_at(
        self,
        server: str,
        operation: Operation[A],
        body: Body,
        *,
        wait_s: float = 0.0,
        answers: tuple[type[ArclogError], ...] = (ArclogError,),
        tries: float = math.inf,
    ) -> Placed[A]:
        """Like `call`, but one of several processes at the address is preferred ('' for any). Any of them may respond."""
        answer = await self._answer(operation, None, body, wait_s, math.inf, answers, tries, server)
        return Placed(decoded(answer.body, operation), answer.server, answer.refused_by)

    async def raw(
        self,
        operation: Operation[Any],
        params: Struct | None = None,
        body: Body = None,
        *,
        wait_s: float = 0.0,
        patience_s: float = math.inf,
        answers: tuple[type[ArclogError], ...] = (ArclogError,),
        tries: float = math.inf,
    ) -> bytes:
        """The body of the answer; see `call`."""
        return (await self._answer(operation, params, body, wait_s, patience_s, answers, tries)).body

    async def _answer(
        self,
        operation: Operation[Any],
        params: Struct | None,
        body: Body,
        wait_s: float,
        patience_s: float,
        answers: tuple[type[ArclogError], ...],
        tries: float,
        server: str = "",
    ) -> Answer:
        failures = unanswered = 0

        async def attempt() -> Answer:
            sent = body(failures) if callable(body) else body
            # A process that did not respond is not preferred a second time.
            preferred = "" if failures or unanswered else server
            return await self._once(operation, params, sent, wait_s, sent_before=unanswered, server=preferred)

        def pause_s(problem: ArclogError) -> float | None:
            nonlocal failures, unanswered
            if is_passing(problem):
                unanswered += isinstance(problem, ServerUnavailable)
                self.failed(problem)
                return 0.0
            failures += 1
            if isinstance(problem, answers) or failures >= tries:
                return None
            if str(problem) not in self._logged:
                self._logged.add(str(problem))
                log.error("the server %s fails: %s; the request is repeated", self.connection.url, problem)
            return 0.0

        answer = await retry(attempt, on=ArclogError, patience_s=patience_s, pause_s=pause_s)
        self._worked()
        return answer

    async def sent(self, operation: Operation[A], params: Struct) -> A:
        """One try at each server, with parameters only."""
        return decoded((await self._once(operation, params, None, 0.0)).body, operation)

    async def once(self, operation: Operation[A], body: Struct, *, limit_s: float = math.inf) -> A:
        """One try at each server, which may fail."""
        return decoded((await self._once(operation, None, body, 0.0, limit_s)).body, operation)

    async def until_answered(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of the first attempt that does not fail with a temporary error."""

        def pause_s(problem: ArclogError) -> float | None:
            if not is_passing(problem):
                return None
            self.failed(problem)
            return 0.0

        answer = await retry(attempt, on=ArclogError, patience_s=math.inf, pause_s=pause_s)
        self._worked()
        return answer

    def failed(self, problem: Exception) -> None:
        """Log once that the server is unavailable."""
        if not self._lost:
            self._lost = True
            log.warning("%s; results are kept and sent when the server is reachable again", problem)

    def _worked(self) -> None:
        self._logged.clear()
        if self._lost:
            self._lost = False
            log.warning("the server %s is back", self.connection.url)

    async def _once(
        self,
        operation: Operation[Any],
        params: Struct | None,
        body: Struct | None,
        wait_s: float,
        limit_s: float = math.inf,
        sent_before: int = 0,
        server: str = "",
    ) -> Answer:
        path, query = address_of(operation, params)
        return await self.connection.exchange(
            operation.method,
            path,
            params=query,
            body=None if body is None else msgspec.json.encode(body),
            safe=operation.repeatable,
            extra_s=wait_s,
            limit_s=min(limit_s, self.limit_s),
            sent_before=sent_before,
            server=server,
        )


def is_passing(problem: ArclogError) -> bool:
    """Return whether a failure is temporary: the server is unavailable or busy."""
    return isinstance(problem, PASSING) and not isinstance(problem, ServerFailed)


def decoded(answer: bytes, operation: Operation[A]) -> A:
    try:
        decoded_answer: A = msgspec.json.decode(answer, type=operation.answer)
    except msgspec.DecodeError as problem:
        raise InvariantBroken(f"the server's answer cannot be read: {problem}; do both run the same version?") from None
    return decoded_answer
