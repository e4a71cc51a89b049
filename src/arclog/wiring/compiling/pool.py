"""Compiles playbooks in separate processes, so that an expensive playbook delays only its sender.

A process is started when it is needed and kept for a while, unless it compiled a heavy playbook, because its priority
stays low after that. A process that takes too long or dies is replaced, and its playbook is refused.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from asyncio import StreamReader, StreamWriter
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


class _Process:
    """A process that compiles, and the connection to it.

    It is not started by the event loop: uvloop forks the server and runs Python's hooks in the child before the new
    program begins, where a lock that another thread held blocks the child, and the server with it. `subprocess` runs no
    Python in the child.
    """

    def __init__(self, child: subprocess.Popen[bytes], reader: StreamReader, writer: StreamWriter) -> None:
        self._child = child
        self.pid = child.pid
        self.reader = reader
        self.writer = writer

    @classmethod
    async def start(cls, command: tuple[str, ...], environment: Mapping[str, str]) -> _Process:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                child = await asyncio.to_thread(_started, command, theirs.fileno(), environment)
        except BaseException:
            ours.close()
            raise
        return cls(child, *await asyncio.open_connection(sock=ours))

    @property
    def returncode(self) -> int | None:
        return self._child.poll()

    async def wait(self) -> None:
        """Wait for its end."""
        if self._child.poll() is None:
            await asyncio.to_thread(self._child.wait)

    async def kill(self) -> None:
        self._child.kill()
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()
        await self.wait()


def _started(command: tuple[str, ...], connection: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - the interpreter of this process, and its own module
        command, stdin=connection, stdout=connection, stderr=subprocess.DEVNULL, env=environment
    )


class CompilingProcesses:
    """Implements `engine.runs.compile_cache.Elsewhere`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._max_elapsed_s = settings.number("compile.max_elapsed_s")
        self._idle_s = settings.number("compile.idle_s")
        self._lanes = Lanes(MAX_PROCESSES)
        self._idle: list[_Process] = []
        self._ending: dict[int, asyncio.TimerHandle] = {}
        self._killing: set[asyncio.Future[None]] = set()

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
                await process.kill()
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
                await process.kill()
                raise _refused(self._why_it_died(process), text, file) from None
            except BaseException:
                await process.kill()
                raise
            if was_heavy:
                await process.kill()
            else:
                self._keep(process)
        return body, findings

    def _why_it_died(self, process: _Process) -> str:
        if process.returncode == -signal.SIGXCPU:
            most_s = self._settings.number("compile.timeout_s")
            return f"it takes more than {most_s:g} s of processor time (compile.timeout_s)"
        most = self._settings.integer("compile.max_memory_bytes")
        return f"the process that compiled it died; it may take {most} bytes of memory (compile.max_memory_bytes)"

    async def close(self) -> None:
        for timer in self._ending.values():
            timer.cancel()
        while self._idle:
            await self._idle.pop().kill()
        await asyncio.gather(*self._killing)

    @staticmethod
    async def _exchange(process: _Process, request: tuple[Any, ...]) -> tuple[bytes, list[Finding], bool]:
        process.writer.write(packed(request))
        await process.writer.drain()
        size = LENGTH.unpack(await process.reader.readexactly(LENGTH.size))[0]
        return ANSWER.decode(await process.reader.readexactly(size))

    async def _acquire(self) -> _Process:
        while self._idle:
            process = self._idle.pop()
            self._ending.pop(process.pid).cancel()
            if process.returncode is None:
                return process
        memory = str(self._settings.integer("compile.max_memory_bytes"))
        command = (sys.executable, "-P", "-c", PROGRAM, memory)
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        return await _Process.start(command, environment)

    def _keep(self, process: _Process) -> None:
        self._idle.append(process)
        loop = asyncio.get_running_loop()
        self._ending[process.pid] = loop.call_later(self._idle_s, self._end, process)

    def _end(self, process: _Process) -> None:
        self._ending.pop(process.pid, None)
        if process in self._idle:
            self._idle.remove(process)
            ending = asyncio.ensure_future(process.kill())
            self._killing.add(ending)
            ending.add_done_callback(self._killing.discard)


def _refused(message: str, text: str, file: str, hint: str = "make it smaller") -> PlaybookError:
    finding = Finding("playbook-too-costly", f"the playbook cannot be compiled: {message}", hint=hint)
    return PlaybookError([finding], text, file)
