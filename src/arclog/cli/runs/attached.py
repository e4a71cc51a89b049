"""Shows a run to its end, and also serves the runs that it started without waiting for them."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import BY_STATE, FAILED, OK

if TYPE_CHECKING:
    import asyncio

    from arclog.cli.render import Out
    from arclog.model.config.settings import Settings
    from arclog.ports.views.api import Api, Summary

# ── interrupts ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Ctrl-C and SIGTERM while a run continues in this process, or at a server.
#
# The first Ctrl-C (or SIGTERM) releases the run and prints how to continue it: nothing is cancelled, finished tasks are
# kept, and a server continues its runs without this process. A second one does not wait for tasks to stop. `arclog
# cancel` ends a run.

#: Time for tasks to stop when the program exits; after it they are abandoned.
_LEAVE_S = 4.0


class Interrupts:
    """Handles Ctrl-C and SIGTERM for the run in this process."""

    def __init__(self, out: Out) -> None:
        self._out = out
        #: exit code of a program that released its run; 0 if it did not
        self.exit_code = OK
        #: runs that this process serves and that have not ended
        self._runs: list[str] = []
        #: the server that runs them, '' if this process does
        self._server = ""
        self._ended = ""
        self._task: asyncio.Task[Any] | None = None
        #: signal → its handler before this one
        self._before: dict[int, Any] = {}

    def started(self, execution_id: str, server: str = "") -> None:
        """A run was started, or is continued."""
        self._runs = [execution_id]
        self._server = server

    def ended(self, execution_id: str, unfinished: Sequence[str]) -> None:
        """The run has ended; these runs that it called have not."""
        self._ended = execution_id
        self._runs = list(unfinished)

    def __enter__(self) -> None:
        import asyncio
        import signal

        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()

        def leave(number: int, _: object) -> None:
            loop.call_soon_threadsafe(self._leave, 128 + number)

        # Like loop.add_signal_handler, which examines all signals of the system and loads `inspect`.
        self._before = {number: signal.signal(number, leave) for number in (signal.SIGINT, signal.SIGTERM)}

    def __exit__(self, *exc: object) -> None:
        import signal

        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _leave(self, code: int) -> None:
        import asyncio

        if self.exit_code:
            self._abandon()
        self.exit_code = code
        self._out.notice(self._farewell())
        # Tasks are stopped before the exit, within a time limit.
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
        os._exit(self.exit_code)


# ── attached ──────────────────────────────────────────────────────────────────────────────────────────────────────────

#: Runs that are listed at a time.
_PAGE = 500
#: Time for a run to be cancelled after its caller has failed.
_CANCEL_S = 1.0


class AttachedRun:
    """Shows a run to its end, with the runs that it started without waiting for them."""

    def __init__(
        self, runtime: Any, out: Out, interrupts: Interrupts, settings: Settings, *, serves: bool, text: str = ""
    ) -> None:
        """`serves`: this process runs it. `text`: the playbook's text, if it is known."""
        from arclog.cli.runs.attention import Attention, may_wait

        self._api: Api = runtime.api
        self._out = out
        self._interrupts = interrupts
        self._serves = serves
        self._every_s = settings.number("run.progress_s")
        self._attention = Attention(self._api, out) if may_wait(text) else None

    async def to_the_end(self, execution_id: str, *, resumed: bool = False) -> int:
        """Show the run; returns the exit code once the run and all runs that it started have ended."""
        return await self._attended(execution_id, self._to_the_end(execution_id, resumed=resumed))

    async def after_its_end(self, execution_id: str) -> int:
        """The same for a run that has ended itself."""
        return await self._attended(execution_id, self._after_its_end(execution_id))

    async def _attended(self, execution_id: str, work: Coroutine[Any, Any, int]) -> int:
        """Do the work, and meanwhile report approvals and signals that the run waits for."""
        import asyncio

        if self._attention is None:
            return await work
        self._attention.follow(execution_id)
        attending = asyncio.ensure_future(self._attention.run())
        try:
            return await work
        finally:
            attending.cancel()
            await asyncio.gather(attending, return_exceptions=True)

    async def _to_the_end(self, execution_id: str, *, resumed: bool) -> int:
        out = self._out
        if out.as_json or out.quiet:
            await self._api.ended(execution_id)
        else:
            from arclog.cli.runs.watch import watch

            await watch(self._api, execution_id, out, resumed=resumed, every_s=self._every_s)
        return await self._after_its_end(execution_id)

    async def _after_its_end(self, execution_id: str) -> int:
        summary = await self._api.summary(execution_id)
        if not self._out.as_json:
            _verdict(summary, self._out)
        if self._serves:
            if summary.state != "COMPLETED":
                await self._let_children_end(execution_id)
            await self._serve_rest(execution_id)
        if self._out.as_json:
            self._out.data(summary)
        return BY_STATE.get(summary.state, FAILED)

    async def _let_children_end(self, execution_id: str) -> None:
        """Wait for the end of called runs, which are cancelled shortly after their caller."""
        for child in (await unfinished_below(self._api, execution_id))[:_PAGE]:
            await self._api.ended(child, timeout_s=_CANCEL_S)

    async def _serve_rest(self, execution_id: str) -> None:
        """Serve the runs that this one started without waiting for them, until they have ended."""
        out = self._out
        while unfinished := await unfinished_below(self._api, execution_id):
            self._interrupts.ended(execution_id, unfinished)
            if not out.quiet:
                others = f" and {len(unfinished) - 5} more" if len(unfinished) > 5 else ""
                out.notice(
                    f"waiting for runs started with wait: false: {', '.join(unfinished[:5])}{others} (Ctrl-C stops waiting)"
                )
            for child in unfinished:
                if self._attention is not None:
                    self._attention.follow(child)
            for child in unfinished:
                await self._api.ended(child)
                if not out.as_json and not out.quiet:
                    _verdict(await self._api.summary(child), out, result=False)


async def unfinished_below(api: Api, execution_id: str) -> list[str]:
    """Runs below this one that have not ended, including those below runs that have."""
    unfinished: list[str] = []
    callers = [execution_id]
    while callers:
        caller, before = callers.pop(), ""
        while page := await api.list(parent=caller, before=before, limit=_PAGE):
            unfinished += [run.execution_id for run in page if run.ended_at is None]
            callers += [run.execution_id for run in page]
            if len(page) < _PAGE:
                break
            before = page[-1].execution_id
    return sorted(unfinished, key=int)


def _verdict(summary: Summary, out: Out, *, result: bool = True) -> None:
    """The last lines of a run that was shown."""
    from arclog.cli.render import MARKS, STATE_MARKS, between, pretty, stored
    from arclog.cli.runs.account import account, next_lines

    completed = summary.state == "COMPLETED"
    if summary.result is not None and completed and result:
        whole = f"arclog show {summary.execution_id} --json"
        out.print(pretty(summary.result, full_command=whole))
    if summary.result_ref is not None and completed and result:
        out.print(stored(summary.result_ref))
    if completed and out.quiet:
        return
    glyph, _, colour = MARKS[STATE_MARKS.get(summary.state, "open")]
    took = between(summary.started_at, summary.ended_at)
    line = f"{glyph} {summary.name} {summary.state.lower()}{f' in {took}' if took else ''}"
    out.print(f"{out.paint(line, colour, 'bold')} {out.paint(f'· execution {summary.execution_id}', 'dim')}")
    lines = account(summary, out)
    if lines:
        out.print(lines)
    if not completed and not out.quiet:
        out.print(next_lines([f"arclog why {summary.execution_id}", *summary.next], out))
