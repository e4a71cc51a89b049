"""Approvals and signals that a run, or a run that it calls, waits for while `arclog run` shows it.

Each is printed once, with the command that answers it. On a terminal, an approval can be answered with one key.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from arclog.model.events import TERMINAL

if TYPE_CHECKING:
    from arclog.cli.render import Out
    from arclog.ports.views.api import Api
    from arclog.ports.views.insight import Wait

_LOOK_S = 0.5
_PAGE = 1000
#: Events after which a run may wait for a person.
_TYPES = ("playbook.request.evaluated", "command.completed", *sorted(TERMINAL))
_ANSWERED = frozenset({"approval", "signal"})


def may_wait(text: str) -> bool:
    """Return whether a playbook contains anything that can wait for a person; '' is an unknown playbook. Comments do
    not count: many mention playbooks.
    """
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return not text or any(word in line for line in lines for word in ("approval", "signal", "playbook"))


class Attention:
    """Finds and prints waits for a person, and takes answers."""

    def __init__(self, api: Api, out: Out) -> None:
        self._api = api
        self._out = out
        #: watched runs, with the last event that was read
        self._positions: dict[str, int] = {}
        #: waits that were already printed, by run and wait
        self._announced: set[tuple[str, str]] = set()
        self._questions: dict[tuple[str, str], Wait] = {}
        #: the terminal's modes while a question is open
        self._modes: list[Any] | None = None
        self._is_interactive = out.tty and sys.stdin.isatty() and not out.as_json and not out.quiet

    def follow(self, execution_id: str) -> None:
        """Watch this run, too."""
        self._positions.setdefault(execution_id, 0)

    async def run(self) -> None:
        """Check periodically, until cancelled."""
        import asyncio

        from arclog.model.errors import ArclogError

        try:
            while True:
                for execution_id in list(self._positions):
                    try:
                        await self._look(execution_id)
                    except ArclogError:  # reported by the display of the run
                        continue
                self._ask()
                await asyncio.sleep(_LOOK_S)
        finally:
            self._questions.clear()
            self._settle()

    async def _look(self, execution_id: str) -> None:
        page = await self._api.events(execution_id, after=self._positions[execution_id], limit=_PAGE, types=_TYPES)
        if page:
            self._positions[execution_id] = page[-1]["seq"]
        elif not any(run == execution_id for run, _ in self._questions):
            return
        if any(event["event_type"] in TERMINAL for event in page):
            del self._positions[execution_id]
        waits = (await self._api.why(execution_id)).waits
        for wait in waits:
            if wait.child:
                self.follow(wait.child)
        waiting = {(execution_id, wait.key or wait.text): wait for wait in waits if wait.what in _ANSWERED}
        for question in [
            question for question in self._questions if question[0] == execution_id and question not in waiting
        ]:
            del self._questions[question]  # it was answered elsewhere
        for name, wait in waiting.items():
            if name not in self._announced:
                self._announced.add(name)
                self._name(execution_id, wait, several=len(waiting) > 1)
                if wait.what == "approval":
                    self._questions[name] = wait

    def _name(self, execution_id: str, wait: Wait, *, several: bool) -> None:
        if self._out.quiet:
            return
        self._out.notice(wait.text)
        which = f" --step '{wait.key}'" if several and wait.key else ""
        if wait.what == "signal":
            self._out.notice(f"  arclog signal {execution_id} {wait.signal}")
        elif not self._is_interactive and wait.key:
            self._out.notice(f"  arclog approve {execution_id}{which}")
            self._out.notice(f"  arclog reject {execution_id}{which} --reason TEXT")

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self) -> None:
        """Ask about the longest wait. Withdraw the open question if nothing waits any more."""
        if not self._is_interactive or (self._modes is None) == (not self._questions):
            return
        if not self._questions:
            self._settle()
            return
        import asyncio
        import termios
        import tty

        self._modes = termios.tcgetattr(sys.stdin)
        tty.setcbreak(sys.stdin)
        self._out.restore = self._settle
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._typed)
        self._prompt()

    def _prompt(self) -> None:
        (execution_id, _), wait = next(iter(self._questions.items()))
        where = f" {wait.step}" if wait.step and len(self._questions) > 1 else ""
        self._out.notice(
            f"approve{where}? Press a to approve, r to reject. Later: arclog approve {execution_id}, arclog reject {execution_id}"
        )

    def _typed(self) -> None:
        import asyncio
        import os

        key = os.read(sys.stdin.fileno(), 1024)[:1].lower()
        if not self._questions:
            self._settle()
        elif key in (b"a", b"y", b"r", b"n"):
            name, wait = next(iter(self._questions.items()))
            del self._questions[name]
            self._answering = asyncio.ensure_future(self._answer(name[0], wait, approved=key in (b"a", b"y")))
            if self._questions:
                self._prompt()
            else:
                self._settle()
        elif not key:
            self._questions.clear()
            self._settle()

    async def _answer(self, execution_id: str, wait: Wait, *, approved: bool) -> None:
        from arclog.cli.runs.signals import user
        from arclog.model.errors import ArclogError
        from arclog.ports.views.api import SignalRequest

        name, reason = ("APPROVE", "") if approved else ("REJECT", "rejected at the terminal")
        try:
            answer = await self._api.signal(execution_id, SignalRequest(name, reason=reason, step=wait.key, by=user()))
        except ArclogError as problem:
            self._out.notice(str(problem))
            return
        self._out.notice(("approved" if approved else "rejected") if answer.accepted else answer.message)

    def _settle(self) -> None:
        """Restore the terminal."""
        import asyncio

        if self._modes is None:
            return
        import termios

        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._modes)
        self._modes = None
