"""Ctrl-C and SIGTERM while a run goes on in this process, or at a server.

The first Ctrl-C (or SIGTERM) releases the run and says how to continue with it: nothing is cancelled, finished tasks are
kept, and what a server runs continues without this process. A second one does not wait for tasks to be stopped.
`arclog cancel` ends a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import OK

if TYPE_CHECKING:
    import asyncio

    from arclog.cli.render import Out

#: Time for tasks to be stopped when the program leaves; after it they are left behind.
_LEAVE_S = 4.0


class Interrupts:
    """What Ctrl-C and SIGTERM do to the run in this process."""

    def __init__(self, out: Out) -> None:
        self._out = out
        #: exit code of a program that left its run behind; 0: it did not
        self.left = OK
        #: runs that this process serves and that have not ended
        self._runs: list[str] = []
        #: the server that runs them, '' when this process does
        self._server = ""
        self._ended = ""
        self._task: asyncio.Task[Any] | None = None

    def started(self, execution_id: str, server: str = "") -> None:
        """A run continues from here."""
        self._runs = [execution_id]
        self._server = server

    def ended(self, execution_id: str, left: Sequence[str]) -> None:
        """The run is over; these that it called are not."""
        self._ended = execution_id
        self._runs = list(left)

    def __enter__(self) -> None:
        import asyncio
        import signal

        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._leave, 130)
        loop.add_signal_handler(signal.SIGTERM, self._leave, 143)

    def __exit__(self, *exc: object) -> None:
        import asyncio
        import signal

        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)

    def _leave(self, code: int) -> None:
        import asyncio

        if self.left:
            self._abandon()
        self.left = code
        self._out.notice(self._farewell())
        # Tasks are stopped on the way out, but nobody waits forever.
        asyncio.get_running_loop().call_later(_LEAVE_S, self._abandon)
        if self._task is not None:
            self._task.cancel()

    def _farewell(self) -> str:
        if not self._runs and self._ended:
            return f"stopped; run {self._ended} has ended"
        if not self._runs:
            return "stopped; `arclog list` shows whether the run was started"
        first = self._runs[0]
        if self._server:
            return f"detached; {self._server} continues the run. To follow it: arclog show {first}. To end it: arclog cancel {first}"
        if not self._ended:
            return f"stopped; the run is not finished. To continue it: arclog resume {first}. To end it: arclog cancel {first}"
        again = ", ".join(f"arclog resume {execution_id}" for execution_id in self._runs[:5])
        more = f" and {len(self._runs) - 5} more" if len(self._runs) > 5 else ""
        return (
            f"stopped; run {self._ended} has ended, but runs that it started with wait: false have not: {again}{more}"
        )

    def _abandon(self) -> None:
        import os

        if self._out.tty:
            self._out.write("\x1b[?25h")
        if self._out.restore is not None:
            self._out.restore()
        os._exit(self.left)
