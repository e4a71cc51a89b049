"""Compiles playbooks in separate processes, so that an expensive playbook delays only its sender.

A process is started when it is needed and kept for a while, unless it compiled a heavy playbook, because its priority
stays low after that. A process that takes too long or dies is replaced, and its playbook is refused.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from arclog.engine.commits.turns import Lanes
from arclog.model.config.settings import Settings
from arclog.model.errors import Finding, PlaybookError
from arclog.wiring.compiling.child import ANSWER, CHECK, LENGTH, PLAN, PROGRAM, packed

log = logging.getLogger("arclog.server")

#: Concurrent processes, each with a playbook of another tenant.
MAX_PROCESSES = 2
#: A process that closed its output ends within this time, or is killed.
_END_S = 5.0
#: Environment variables that such a process inherits.
_ENVIRONMENT = ("PYTHONPATH", "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")


class CompilingProcesses:
    """Implements `engine.runs.compile_cache.Elsewhere`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._max_elapsed_s = settings.number("compile.max_elapsed_s")
        self._idle_s = settings.number("compile.idle_s")
        self._lanes = Lanes(MAX_PROCESSES)
        self._idle: list[Process] = []
        self._ending: dict[int, asyncio.TimerHandle] = {}

    async def __call__(
        self, text: str, file: str, tenant: str, files: Mapping[str, str] = MappingProxyType({})
    ) -> bytes:
        """The encoded plan. Raises PlaybookError."""
        body, findings = await self._done(PLAN, text, file, tenant, files)
        if findings:
            raise PlaybookError(findings, text, file)
        return body

    async def check(self, text: str, file: str, tenant: str) -> tuple[bytes, list[Finding]]:
        """Return the graph of a playbook as JSON (empty if there are errors), and the findings. Raises
        PlaybookError.
        """
        return await self._done(CHECK, text, file, tenant, {})

    async def _done(
        self, kind: str, text: str, file: str, tenant: str, files: Mapping[str, str]
    ) -> tuple[bytes, list[Finding]]:
        settings = {name: self._settings[name] for name in self._settings}
        async with self._lanes.lane(tenant):
            process = await self._acquire()
            try:
                async with asyncio.timeout(self._max_elapsed_s):
                    body, findings, was_heavy = await self._exchange(process, (kind, text, file, settings, dict(files)))
            except TimeoutError:
                await _killed(process)
                message = f"it was not compiled within {self._max_elapsed_s:g} s (compile.max_elapsed_s)"
                log.warning("%s: %s; the processors of this machine may be overloaded", file, message)
                raise _refused(
                    message, text, file, "make it smaller, or try again when the server is less busy"
                ) from None
            except (EOFError, OSError):
                # A signal to a process that is about to end can hide how it ended.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_END_S):
                        await process.wait()
                await _killed(process)
                raise _refused(self._why_it_died(process), text, file) from None
            except BaseException:
                await _killed(process)
                raise
            if was_heavy:
                await _killed(process)
            else:
                self._keep(process)
        return body, findings

    def _why_it_died(self, process: Process) -> str:
        if process.returncode == -signal.SIGXCPU:
            most_s = self._settings.number("compile.timeout_s")
            return f"it takes more than {most_s:g} s of processor time (compile.timeout_s)"
        most = self._settings.integer("compile.max_memory_bytes")
        return f"the process that compiled it died; it may take {most} bytes of memory (compile.max_memory_bytes)"

    async def close(self) -> None:
        for timer in self._ending.values():
            timer.cancel()
        while self._idle:
            await _killed(self._idle.pop())

    @staticmethod
    async def _exchange(process: Process, request: tuple[Any, ...]) -> tuple[bytes, list[Finding], bool]:
        source, sink = process.stdin, process.stdout
        if source is None or sink is None:
            raise EOFError
        source.write(packed(request))
        await source.drain()
        size = LENGTH.unpack(await sink.readexactly(LENGTH.size))[0]
        return ANSWER.decode(await sink.readexactly(size))

    async def _acquire(self) -> Process:
        while self._idle:
            process = self._idle.pop()
            self._ending.pop(process.pid).cancel()
            if process.returncode is None:
                return process
        memory = str(self._settings.integer("compile.max_memory_bytes"))
        command = (sys.executable, "-P", "-c", PROGRAM, memory)
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment)

    def _keep(self, process: Process) -> None:
        self._idle.append(process)
        loop = asyncio.get_running_loop()
        self._ending[process.pid] = loop.call_later(self._idle_s, self._end, process)

    def _end(self, process: Process) -> None:
        self._ending.pop(process.pid, None)
        if process in self._idle:
            self._idle.remove(process)
            if process.stdin is not None:
                process.stdin.close()


async def _killed(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
        with suppress(OSError):
            await process.stdin.wait_closed()
    await process.wait()


def _refused(message: str, text: str, file: str, hint: str = "make it smaller") -> PlaybookError:
    finding = Finding("playbook-too-costly", f"the playbook cannot be compiled: {message}", hint=hint)
    return PlaybookError([finding], text, file)
