"""One installation of packages into the folder of an environment, step by step.

Each step is a process tree with a guard. Steps in which code of packages can run are confined (`installers`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from arclog.model.config.settings import Settings
from arclog.model.outcome import TaskError, error
from arclog.sandbox.child.trees import remove_tree
from arclog.sandbox.confinement_settings import Confinement
from arclog.sandbox.installers import (
    WORKING_FOLDER,
    Installer,
    InstallFolders,
    Reach,
    Source,
    Step,
    confined_environment,
    files_for,
    has_to_build,
    installer_environment,
    installer_failure,
)
from arclog.sandbox.launcher import Launcher
from arclog.sandbox.processes import Tree, bounds, ended_by, not_allowed
from arclog.sandbox.protocol import Report
from arclog.sandbox.streams import Lines

#: the part of an installer's output that is searched for the error
_TAIL_BYTES = 32 * 1024
_REPEATED = "a package has to be built from source: the installation is repeated, confined"

Log = Callable[[str, str], None]


class EnvironmentFailed(Exception):
    """The environment does not exist and could not be created."""

    def __init__(self, problem: TaskError) -> None:
        self.problem = problem
        super().__init__(problem.message)


class _HasToBuild(Exception):
    """A package has to be built from source, which the installer was not allowed to do."""


class Installation(Struct, frozen=True):
    """The installation of some requirements."""

    settings: Settings
    launcher: Launcher
    program: Installer
    source: Source
    #: normalized
    requirements: tuple[str, ...]
    #: the requirements in messages
    title: str
    #: of the steps in which code of packages can run; None if tasks are not confined
    confinement: Confinement | None

    async def run(self, folders: InstallFolders, log: Log) -> None:
        """Create the environment. Raises EnvironmentFailed."""
        builds = not self.source.only_wheels
        if self.confinement is None or not self.program.prefers_wheels:
            await self._install(folders, log, builds=builds)
        elif not await self._install_wheels(folders, log):
            await self._install(folders, log, builds=True)

    async def _install_wheels(self, folders: InstallFolders, log: Log) -> bool:
        """Install without code of packages. Return False if one of them has to be built, and may be."""
        lines: list[tuple[str, str]] = []
        try:
            # The output is kept back: if a package has to be built, it is an error that is none.
            await self._install(folders, lambda stream, text: lines.append((stream, text)), builds=False)
        except _HasToBuild:
            lines = [("log", _REPEATED)]
            return False
        finally:
            for stream, text in lines:
                log(stream, text)
        return True

    async def _install(self, folders: InstallFolders, log: Log, *, builds: bool) -> None:
        await asyncio.to_thread(removed, folders.environment)
        await asyncio.to_thread(removed, folders.scratch)
        folders.make()
        for step in self.program.steps(folders, self.requirements, self.source, builds=builds):
            confinement = self.confinement if step.is_confined else None
            report, lines = await self._ended(self._spec(step, folders, confinement), log)
            problem = self._problem(step, report, lines, folders.notes, confinement)
            if problem is None:
                continue
            may_build = not builds and not self.source.only_wheels
            if may_build and problem.code == "REQUIREMENTS" and has_to_build(lines):
                raise _HasToBuild
            raise EnvironmentFailed(problem)

    def _spec(self, step: Step, folders: InstallFolders, confinement: Confinement | None) -> dict[str, Any]:
        """Return the spec of the step's guard."""
        spec: dict[str, Any] = {"argv": step.command, "cwd": WORKING_FOLDER}
        if confinement is None:
            return {**spec, "env": installer_environment(folders.temporary)}
        folders.sandbox.mkdir(mode=0o700)  # the guard removes it
        variables = confined_environment(folders)
        return {
            **spec,
            **bounds(self.settings),
            "env": variables,
            "folder": str(folders.sandbox),
            "confinement": confinement.spec(
                read=files_for(self.program, folders, self.source, variables),
                write=[str(folders.environment), str(folders.work)],
            ),
        }

    async def _ended(self, spec: dict[str, Any], log: Log) -> tuple[Report, list[str]]:
        """Run a step to its end. Return the guard's report and the last lines of the output."""
        output = bytearray()
        log_cap = self.settings.integer("logs.max_task_bytes")
        out = Lines("stdout", log, log_cap, "logs.max_task_bytes")
        err = Lines("stderr", log, log_cap, "logs.max_task_bytes")

        def listener(lines: Lines) -> Callable[[bytes], None]:
            def take(data: bytes) -> None:
                output.extend(data)
                del output[:-_TAIL_BYTES]
                lines.feed(data)

            return take

        try:
            null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            try:
                tree = Tree(self.launcher, spec, null)
            finally:
                os.close(null)
            tree.stdout.listener, tree.stderr.listener = listener(out), listener(err)
            try:
                report = await asyncio.shield(tree.gone)
            except asyncio.CancelledError:
                await tree.finished()
                raise
            if "folder" in spec:
                await tree.finished()  # its guard has removed the folder, which the next one needs
        finally:
            out.end()
            err.end()
        return report, output.decode("utf-8", "replace").splitlines()

    def _problem(
        self, step: Step, report: Report, lines: list[str], notes: Path, confinement: Confinement | None
    ) -> TaskError | None:
        """Return the error of a step that failed, else None."""
        if refused := not_allowed(report, self.settings):
            return refused
        name = self.program.name
        if report.crowd:
            most = self.settings.integer("tasks.max_threads")
            message = f"{name} had {report.crowd} processes while it made the environment for {self.title}"
            message = f"{message}; at most {most} are allowed (setting tasks.max_threads)"
            return error("limit", message, code="tasks.max_threads")
        if report.failed:
            return error("config", f"{step.command[0]} could not be started: {report.failed}")
        if report.status is None or os.WIFSIGNALED(report.status):
            how, code = ended_by(report.status)
            message = f"{name} was ended by {how} while it made the environment for {self.title}"
            return error("killed", message, code=code)
        if os.waitstatus_to_exitcode(report.status):
            reach = Reach.of(confinement, is_relayed=report.relayed)
            return installer_failure(self.program, self.title, self.source, lines, notes, reach)
        return None


def removed(folder: Path) -> bool:
    """Remove a folder that others have filled, without following links. Return whether it is gone."""
    with suppress(OSError):
        remove_tree(str(folder))
    return not os.path.lexists(folder)
