"""The connection of a NATS result store, and what its failures mean.

Work that is handed in must be one that may be done twice: a server that went away in the middle is asked again by a new
connection, until `results.patience_s` has passed. Messages tell servers, never credentials.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import nats.errors
from nats.js import JetStreamContext
from nats.js import errors as js_errors

from arclog.drivers.backoff import retry
from arclog.drivers.nats.connect import Connection
from arclog.model.config.settings import Settings
from arclog.model.errors import ArclogError, ResultStoreAway, ResultUnavailable, SettingsError

R = TypeVar("R")
Work = Callable[[JetStreamContext], Awaitable[R]]

#: JetStream's code of a publish whose subject has had another message meanwhile
MOVED_ON = 10071
#: its codes of "no room": the stream's limit, the server's or the account's storage
_FULL = frozenset({10023, 10028, 10047, 10077})


#: Makes a connection. Raises SettingsError where trying again would lead to the same, another ArclogError where not.
Connect = Callable[[], Awaitable[tuple[Connection, JetStreamContext]]]


class _Lost(Exception):
    """The connection was lost while something was asked."""


class NatsLink:
    def __init__(self, connect: Connect, place: str, settings: Settings) -> None:
        #: for messages
        self.place = place
        self._connect = connect
        self._timeout_s = settings.number("results.timeout_s")
        self._patience_s = settings.number("results.patience_s")
        self._line: Connection | None = None
        self._context: JetStreamContext | None = None
        self._connecting = asyncio.Lock()

    @property
    def max_payload(self) -> int:
        """Largest message that the server takes."""
        return 0 if self._line is None else self._line.max_payload

    async def run(self, work: Work[R]) -> R:
        """What comes of the work; it may be done twice. What is not found, or moved on meanwhile, is the caller's."""
        return await retry(lambda: self._once(work), on=ResultStoreAway, patience_s=self._patience_s)

    async def _once(self, work: Work[R]) -> R:
        try:
            line, context = await self._connected()
            return await _unless_lost(work(context), line)
        except js_errors.NotFoundError:
            raise
        except js_errors.BadRequestError as problem:
            raise (problem if problem.err_code == MOVED_ON else self._meant(problem)) from None
        except (nats.errors.Error, OSError, TimeoutError, _Lost) as problem:
            raise self._meant(problem) from problem

    async def _connected(self) -> tuple[Connection, JetStreamContext]:
        async with self._connecting:
            if self._line is None or self._context is None or self._line.over.is_set():
                await self.close()
                try:
                    self._line, self._context = await self._connect()
                except SettingsError as problem:
                    raise ResultUnavailable(f"the result store {self.place} cannot be used: {problem}") from problem
                except ArclogError as problem:
                    raise ResultStoreAway(f"the result store {self.place} cannot be reached: {problem}") from problem
            return self._line, self._context

    async def close(self) -> None:
        line, self._line, self._context = self._line, None, None
        if line is not None:
            with suppress(nats.errors.Error, OSError):
                await line.close()

    def _meant(self, problem: BaseException) -> ResultUnavailable:
        """What a failure is, and what to do."""
        if isinstance(problem, js_errors.APIError) and problem.err_code in _FULL:
            return ResultUnavailable(
                f"no room: a result could not be stored in {self.place} ({problem.description}), and nothing of it is kept; "
                "give the bucket or JetStream more room (`arclog gc` removes results that are no longer needed), then run "
                "it again"
            )
        if isinstance(problem, js_errors.ServiceUnavailableError | js_errors.NoStreamResponseError):
            return ResultStoreAway(
                f"the result store {self.place} gives no answer: JetStream is not enabled there (-js), or has no leader yet"
            )
        if isinstance(problem, _Lost | OSError | nats.errors.ConnectionClosedError | nats.errors.NoRespondersError):
            return ResultStoreAway(f"the result store {self.place} cannot be reached; look whether NATS runs")
        if isinstance(problem, TimeoutError):
            return ResultStoreAway(
                f"the result store {self.place} did not answer within {self._timeout_s:g} s; check whether it is overloaded, "
                "and whether our user may use JetStream (setting results.timeout_s)"
            )
        return ResultUnavailable(f"the result store {self.place} refuses: {problem}")


async def _unless_lost(work: Awaitable[R], line: Connection) -> R:
    """What comes of the work; a lost connection ends it at once, since its answer would never come."""
    working = asyncio.ensure_future(work)
    losing = asyncio.ensure_future(line.over.wait())
    try:
        await asyncio.wait({working, losing}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise _Lost
        return working.result()
    finally:
        losing.cancel()
        if not working.done():
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
