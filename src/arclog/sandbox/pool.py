"""Warm python processes. A cell serves one execution with one set of packages, and ends with that execution. Only the
unused spare belongs to no execution; it has the worker's own packages.

A new spare is started after the last one was taken, so that the first task of an execution gets a running process. An
environment of packages has its own launcher while it has cells.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from arclog.sandbox.cell import Cell, Limits, Listener, Reply, Task
from arclog.sandbox.confinement_settings import Confinement
from arclog.sandbox.folders import Folders
from arclog.sandbox.launcher import Launcher
from arclog.sandbox.protocol import Report

if TYPE_CHECKING:
    from arclog.sandbox.environments import Environment


class _EnvironmentInUse:
    """An environment in use by cells: its launcher, and a hold that prevents its removal."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment.shared()
        self.launcher = Launcher(bare=True)
        self.cells = 0

    async def close(self) -> None:
        await self.launcher.close()
        self.environment.release()


class Pool:
    """Cells by execution."""

    def __init__(self, folders: Folders, limits: Limits, warm: int, confinement: Confinement | None) -> None:
        #: starts cells with the worker's own packages
        self.launcher = Launcher()
        self._in_use: dict[str, _EnvironmentInUse] = {}
        self._folders = folders
        self._limits = limits
        self._warm = warm
        self._confinement = confinement
        self._spare: Cell | None = None
        #: idle cells, the longest unused first
        self._idle: list[Cell] = []
        self._busy: set[Cell] = set()
        #: cells whose guards are still cleaning up
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self) -> None:
        """Start the zygote early. Needs no event loop."""
        self.launcher.start()

    @property
    def idle(self) -> int:
        return len(self._idle)

    async def run(
        self,
        execution_id: str,
        task: Task,
        listener: Listener,
        environment: Environment | None = None,
        files: Path | None = None,
    ) -> tuple[Reply | Report, Cell]:
        """Run one task in a cell of its execution and its packages. A task that reads `files` gets its own cell, since
        a process's permissions are fixed when it starts.
        """
        cell = self._take(execution_id, environment) if files is None else self._new(environment, files)
        cell.execution_id = execution_id
        self._busy.add(cell)
        try:
            return await cell.run(task, listener), cell
        finally:
            self._busy.discard(cell)
            self._give(cell)

    async def execution_ended(self, execution_id: str) -> None:
        """Kill the cells of an execution. A running one is killed when its task ends."""
        for cell in self._busy:
            if cell.execution_id == execution_id:
                cell.fit = False
        ended = [cell for cell in self._idle if cell.execution_id == execution_id]
        for cell in ended:
            self._idle.remove(cell)
            self._end(cell)
        for cell in ended:
            await cell.tree.killed()

    async def close(self) -> None:
        """Kill all cells and wait until they have ended."""
        self._closed = True
        cells = [*self._idle, *self._busy, *([self._spare] if self._spare else [])]
        self._idle.clear()
        self._spare = None
        for cell in cells:
            self._end(cell)
        if self._ending:
            await asyncio.wait(set(self._ending))
        for in_use in self._in_use.values():  # those whose first cell could not be created
            await in_use.close()
        self._in_use.clear()
        await self.launcher.close()

    def _take(self, execution_id: str, environment: Environment | None) -> Cell:
        """Return the most recently used cell of this execution, else the spare, else a new one."""
        packages = environment.digest if environment else ""
        for cell in reversed(self._idle):
            if cell.execution_id == execution_id and cell.environment == packages:
                self._idle.remove(cell)
                if cell.alive and cell.fit and cell.is_in_place():
                    return cell
                self._end(cell)
        if environment is not None:
            cell = self._new(environment)
        else:
            spare, self._spare = self._spare, None
            if spare is not None and spare.alive and spare.fit and spare.is_in_place():
                cell = spare
            else:
                if spare is not None:
                    self._end(spare)
                cell = self._new()
            asyncio.get_running_loop().call_soon(self._prepare)
        return cell

    def _prepare(self) -> None:
        if self._spare is None and self._warm and not self._closed:
            try:
                self._spare = self._new()
            except OSError:  # out of files or processes; a task that needs a cell reports it
                return

    def _new(self, environment: Environment | None = None, files: Path | None = None) -> Cell:
        folders = self._folders.of_next("python")
        if environment is None:
            return self._for_one(Cell(self.launcher, folders, self._limits, self._confinement, None, files), files)
        in_use = self._in_use.get(environment.digest)
        if in_use is None:
            in_use = self._in_use[environment.digest] = _EnvironmentInUse(environment)
        cell = Cell(in_use.launcher, folders, self._limits, self._confinement, environment, files)
        in_use.cells += 1
        return self._for_one(cell, files)

    def _for_one(self, cell: Cell, files: Path | None) -> Cell:
        """Mark a cell that reads a task's files, so that it serves no other task."""
        cell.fit = files is None
        return cell

    def _give(self, cell: Cell) -> None:
        if self._closed or not cell.fit or not self._warm:
            self._end(cell)
            return
        self._idle.append(cell)
        while len(self._idle) > self._warm:
            self._end(self._idle.pop(0))

    def _end(self, cell: Cell) -> None:
        ending = asyncio.get_running_loop().create_task(self._clean_up(cell))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _clean_up(self, cell: Cell) -> None:
        await cell.tree.finished()
        if cell.folder.exists():  # its guard was killed before it could remove the folder
            from shutil import rmtree

            await asyncio.to_thread(rmtree, cell.folder, ignore_errors=True)
        in_use = self._in_use.get(cell.environment)
        if in_use is not None:
            in_use.cells -= 1
            if not in_use.cells:
                del self._in_use[cell.environment]
                await in_use.close()
