"""Ctrl-C and SIGTERM while a run goes on in this process.

One Ctrl-C cancels the run, a second one (or SIGTERM) leaves it as it stands; a run that was left can be resumed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arclog.cli.exits import OK

if TYPE_CHECKING:
    import asyncio

    from arclog.cli.render import Out
    from arclog.ports.api import Api

#: Time for tasks to be stopped when the program leaves; after it they are left behind.
_LEAVE_S = 4.0


class Interrupts:
    """What Ctrl-C and SIGTERM do to the run in this process."""

    def __init__(self, out: Out) -> None:
        self._out = out
        #: exit code of a program that left its run behind; 0: it did not
        self.left = OK
        self._api: Api | None = None
        self._id = ""
        self._cancelling: asyncio.Task[Any] | None = None
        self._task: asyncio.Task[Any] | None = None

    def started(self, api: Api, execution_id: str) -> None:
        self._api = api
        self._id = execution_id

    def __enter__(self) -> None:
        import asyncio
        import signal

        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        loop.add_signal_handler(signal.SIGTERM, self._leave, 143)

    def __exit__(self, *exc: object) -> None:
        import asyncio
        import signal

        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)

    def _interrupt(self) -> None:
        import asyncio

        if self._api is None or self._cancelling is not None:
            self._leave(130)
            return
        self._cancelling = asyncio.ensure_future(self._cancel(self._api))

    async def _cancel(self, api: Api) -> None:
        from arclog.model.errors import ArclogError

        try:
            status = await api.status(self._id)
            if status.ended_at is None and (status.started_at is None or await api.pausing(self._id)):
                # Nothing is under way: what somebody paused, or has to approve, is left to him.
                self._leave(130)
                return
            self._out.notice("cancelling; Ctrl-C again leaves the run as it stands")
            await api.cancel(self._id, "interrupted by the user")
        except ArclogError as error:  # it may have ended in this moment
            self._out.notice(str(error))

    def _leave(self, code: int) -> None:
        import asyncio

        if self.left:
            self._abandon()
        self.left = code
        if self._cancelling is not None and self._cancelling.done() and not self._cancelling.cancelled():
            self._out.notice(f"left; the run {self._id} is over")
        elif self._id:
            self._out.notice(f"left; go on with: arclog resume {self._id}")
        else:
            self._out.notice("left; `arclog list` shows whether the run was started")
        # Tasks are stopped on the way out, but nobody waits for ever.
        asyncio.get_running_loop().call_later(_LEAVE_S, self._abandon)
        if self._task is not None:
            self._task.cancel()

    def _abandon(self) -> None:
        import os

        if self._out.tty:
            self._out.write("\x1b[?25h")
        os._exit(self.left)
