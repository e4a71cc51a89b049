"""The secrets of one command: resolved for each attempt that uses them, and redacted from all that leaves it.

Law: everything that a task produces (outcome, log lines, stored data, progress, template errors) passes the redactor of its
command before it leaves the worker. The redactor knows every keychain entry of the playbook that can be read without a
request, and every value that an attempt of this command got, including values from before a rotation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from arclog.model.errors import SecretUnavailable
from arclog.model.inputs import run_secret
from arclog.model.outcome import Outcome, error, failed
from arclog.plan.program import TaskProgram
from arclog.ports.results import Content, ResultSink, ResultWriter
from arclog.ports.secrets import Credential, Secrets

if TYPE_CHECKING:
    from arclog.model.data.redact import Redactor, Stream

#: Kinds that need a request to another service: resolved only when they are used.
_REMOTE = frozenset({"oauth2"})


class CommandSecrets:
    """The keychain of one command. Without entries nothing here costs anything."""

    def __init__(
        self, secrets: Secrets | None, entries: Sequence[Mapping[str, Any]], scope: str, execution_id: int = 0
    ) -> None:
        self._secrets = secrets
        self._entries = {str(entry["name"]): _of_run(entry, execution_id) for entry in entries}
        self._scope = scope
        self._known: dict[str, str] = {}
        self._redactor: Redactor | None = None
        self._looked = False

    async def open(self, task: TaskProgram) -> AttemptSecrets:
        """What the next attempt of a task uses. What is not available is a problem of the attempt."""
        attempt = AttemptSecrets(self)
        if not self._entries:
            return attempt
        if not self._looked:
            self._looked = True
            await self._look()
        await attempt.resolve(self._used(task))
        return attempt

    def _used(self, task: TaskProgram) -> Iterable[str]:
        """The entries that a task's templates name; all of them when they name the keychain as a whole."""
        names: set[str] = set()
        for path in task.paths():
            if path[0] == "keychain":
                names.update(self._entries if len(path) == 1 else {path[1]} & self._entries.keys())
        return sorted(names)

    async def _look(self) -> None:
        """Resolve local secrets in advance: a task may get at a secret in other ways than by its name."""
        for name, entry in self._entries.items():
            if entry["kind"] not in _REMOTE:
                try:
                    await self.resolve(name)
                except SecretUnavailable:
                    continue  # a task that uses it says so

    async def resolve(self, name: str) -> Credential:
        entry = self._entries.get(name)
        if entry is None:
            known = ", ".join(self._entries) or "none"
            raise SecretUnavailable(f"auth: the keychain has no entry {name!r}; declared: {known}")
        if self._secrets is None:
            raise SecretUnavailable(f"keychain entry {name}: this worker cannot resolve secrets")
        credential = await self._secrets.resolve(entry, self._scope)
        new = {text: name for text in credential.secrets if text not in self._known}
        if new:
            self._known.update(new)
            self._redactor = _redactor(frozenset(self._known.items()))
        return credential

    async def refused(self, names: Iterable[str]) -> None:
        if self._secrets is not None:
            for name in names:
                with suppress(SecretUnavailable):  # then there is nothing in a cache either
                    await self._secrets.refused(self._entries[name], self._scope)

    @property
    def redactor(self) -> Redactor | None:
        return self._redactor


def _of_run(entry: Mapping[str, Any], execution_id: int) -> Mapping[str, Any]:
    """A secret input is a secret that is kept for one run."""
    if entry["kind"] != "input":
        return entry
    return {"name": entry["name"], "kind": "secret", "secret": run_secret(execution_id, str(entry["name"]))}


@lru_cache(maxsize=64)
def _redactor(known: frozenset[tuple[str, str]]) -> Redactor | None:
    """Commands of one playbook share theirs: its patterns are compiled once."""
    from arclog.model.data.redact import Redactor

    return Redactor.of(dict(sorted(known)))


class AttemptSecrets:
    """The secrets that one attempt may use, and the redaction of its output."""

    def __init__(self, command: CommandSecrets) -> None:
        self._command = command
        self._resolved: dict[str, Credential] = {}
        #: the error outcome of an attempt whose secrets are not available
        self.problem: Outcome | None = None
        self.auth: Credential | None = None

    @property
    def scope(self) -> dict[str, Any] | None:
        """What templates see as `keychain`."""
        return {name: dict(secret.fields) for name, secret in self._resolved.items()} if self._resolved else None

    async def resolve(self, names: Iterable[str]) -> None:
        try:
            for name in names:
                self._resolved[name] = await self._command.resolve(name)
        except SecretUnavailable as problem:
            self.problem = self._failed(problem)

    async def authorize(self, config: Mapping[str, Any]) -> Outcome | None:
        """Resolve what the task's `auth` names; the error outcome when it is not available."""
        name = config.get("auth")
        if name is None:
            return None
        if not isinstance(name, str):
            return failed(error("config", "auth must be the name of a keychain entry"))
        try:
            self.auth = self._resolved[name] = self._resolved.get(name) or await self._command.resolve(name)
        except SecretUnavailable as problem:
            return self._failed(problem)
        return None

    def text(self, text: str) -> str:
        return self.value(text)  # type: ignore[no-any-return]  # a text stays one

    def value(self, value: Any) -> Any:
        redactor = self._command.redactor
        return value if redactor is None else redactor.value(value)

    async def conclude(self, outcome: Outcome) -> Outcome:
        """The redacted outcome. A credential that was not accepted is removed from the cache."""
        if outcome.error is not None and outcome.error.kind == "auth" and self._resolved:
            await self._command.refused(self._resolved)
        if self._command.redactor is None:
            return outcome
        problem = outcome.error
        if problem is not None:
            problem = replace(problem, message=self.text(problem.message), code=self.value(problem.code))
        return replace(
            outcome,
            result=self.value(outcome.result),
            error=problem,
            meta=self.value(outcome.meta),
            helper={name: self.value(fields) for name, fields in outcome.helper.items()},
        )

    def log(self, write: Callable[[str, str], None]) -> Callable[[str, str], None]:
        redactor = self._command.redactor
        return write if redactor is None else lambda stream, text: write(stream, redactor.text(text))

    def progress(
        self, report: Callable[[float, float | None, str], None]
    ) -> Callable[[float, float | None, str], None]:
        redactor = self._command.redactor
        if redactor is None:
            return report

        def redacted_progress(done: float, total: float | None = None, unit: str = "") -> None:
            report(done, total, redactor.text(unit))

        return redacted_progress

    def results(self, sink: ResultSink) -> ResultSink:
        redactor = self._command.redactor
        return sink if redactor is None else _RedactedSink(sink, redactor)

    def _failed(self, problem: SecretUnavailable) -> Outcome:
        return failed(error(problem.kind, self.text(str(problem)), code="KEYCHAIN", retryable=problem.retryable))


class _RedactedSink:
    """A result sink whose writers redact secrets."""

    def __init__(self, sink: ResultSink, redactor: Redactor) -> None:
        self._sink = sink
        self._redactor = redactor
        self.inline_max_bytes = sink.inline_max_bytes
        self.read = sink.read
        self.read_items = sink.read_items

    def writer(self, *, listed: bool = False, content_type: str = "application/json") -> ResultWriter:
        return _RedactedWriter(self._sink.writer(listed=listed, content_type=content_type), self._redactor)


class _RedactedWriter:
    def __init__(self, writer: ResultWriter, redactor: Redactor) -> None:
        self._writer = writer
        self._redactor = redactor
        self._stream: Stream | None = None

    async def write(self, chunk: bytes) -> None:
        if self._stream is None:
            self._stream = self._redactor.stream()
        ready = self._stream.feed(chunk)
        if ready:
            await self._writer.write(ready)

    async def add(self, items: Sequence[Any]) -> None:
        await self._writer.add([self._redactor.value(item) for item in items])

    async def commit(self) -> Content:
        if self._stream is not None:
            rest = self._stream.end()
            if rest:
                await self._writer.write(rest)
        return await self._writer.commit()

    async def abandon(self) -> None:
        await self._writer.abandon()
