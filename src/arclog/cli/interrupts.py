"""Ctrl-C and SIGTERM while a run goes on in this process, or at a server.

One Ctrl-C cancels the run, a second one (or SIGTERM) leaves it as it stands; a run that was left can be resumed. What a
server runs goes on without this process: on a terminal the first Ctrl-C asks.
"""

from __future__ import annotations

import sys
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

        #: the server that runs it, '' when this process does
        self._server = ""
        #: the terminal's modes while a question is open
        self._modes: list[Any] | None = None

    def started(self, api: Api, execution_id: str, server: str = "") -> None:
        self._api = api
        self._id = execution_id
        self._server = server

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

        self._settle()
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)

    def _interrupt(self) -> None:
        import asyncio

        if self._api is None or self._cancelling is not None or self._modes is not None:
            self._leave(130)
        elif self._server and self._out.tty and sys.stdin.isatty():
            self._ask()
        else:
            self._cancelling = asyncio.ensure_future(self._cancel(self._api))

    def _ask(self) -> None:
        """One key decides; what is shown goes on meanwhile."""
        import asyncio
        import termios
        import tty

        self._modes = termios.tcgetattr(sys.stdin)
        tty.setcbreak(sys.stdin)
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._answered)
        self._out.notice(
            "c cancels the run, d (or Ctrl-C again) detaches and lets it go on, any other key goes on watching"
        )

    def _answered(self) -> None:
        import asyncio
        import os

        key = os.read(sys.stdin.fileno(), 1024)[:1].lower()
        self._settle()
        if key == b"c" and self._api is not None:
            self._cancelling = asyncio.ensure_future(self._cancel(self._api, asked=True))
        elif key in (b"d", b"\x04", b""):
            self._leave(130)

    def _settle(self) -> None:
        """The question is over, however: the terminal is as it was."""
        import asyncio

        if self._modes is None:
            return
        import termios

        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._modes)
        self._modes = None

    async def _cancel(self, api: Api, *, asked: bool = False) -> None:
        from arclog.model.errors import ArclogError

        try:
            status = await api.status(self._id)
            if asked:
                pass
            elif status.ended_at is None and (status.started_at is None or await api.pausing(self._id)):
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
        elif self._server and self._id:
            self._out.notice(f"detached; {self._server} goes on with it: arclog show {self._id}")
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

        self._settle()
        if self._out.tty:
            self._out.write("\x1b[?25h")
        os._exit(self.left)
