"""The secrets of one command: resolved for each attempt that uses them, and redacted from its output.

Invariant: everything that a task produces (outcome, log lines, stored data, progress, template errors) passes the
redactor of its command before it leaves the worker. The redactor knows every keychain entry of the playbook that can be
read without a request, and every value that an attempt of this command used, including values from before a rotation.
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

#: Kinds that need a request to another service. They are resolved only when a task uses them.
_REMOTE = frozenset({"oauth2"})


class CommandSecrets:
    """The keychain of one command."""

    def __init__(
        self, secrets: Secrets | None, entries: Sequence[Mapping[str, Any]], scope: str, execution_id: int = 0
    ) -> None:
        self._secrets = secrets
        self._entries = {str(entry["name"]): _of_run(entry, execution_id) for entry in entries}
        self._scope = scope
        self._known: dict[str, str] = {}
        self._redactor: Redactor | None = None
        self._local_resolved = False

    @property
    def has_entries(self) -> bool:
        """Return whether the playbook declares secrets. Without any, nothing is resolved or redacted."""
        return bool(self._entries)

    async def open(self, task: TaskProgram) -> AttemptSecrets:
        """Resolve the secrets that the next attempt of a task uses. A missing secret fails the attempt."""
        attempt = AttemptSecrets(self)
        if not self._entries:
            return attempt
        if not self._local_resolved:
            self._local_resolved = True
            await self._resolve_local()
        await attempt.resolve(self._used(task))
        return attempt

    def _used(self, task: TaskProgram) -> Iterable[str]:
        """Return the entries that a task's templates name; all entries if a template names the keychain as a whole."""
        names: set[str] = set()
        for path in task.paths():
            if path[0] == "keychain":
                names.update(self._entries if len(path) == 1 else {path[1]} & self._entries.keys())
        return sorted(names)

    async def _resolve_local(self) -> None:
        """Resolve local secrets in advance: a task can obtain a secret without naming it, and it must be redacted."""
        for name, entry in self._entries.items():
            if entry["kind"] not in _REMOTE:
                try:
                    await self.resolve(name)
                except SecretUnavailable:
                    continue  # a task that uses it reports the problem

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
                with suppress(SecretUnavailable):  # nothing is cached in that case
                    await self._secrets.refused(self._entries[name], self._scope)

    @property
    def redactor(self) -> Redactor | None:
        return self._redactor


def _of_run(entry: Mapping[str, Any], execution_id: int) -> Mapping[str, Any]:
    """Return the entry of a secret input as the secret of this run."""
    if entry["kind"] != "input":
        return entry
    return {"name": entry["name"], "kind": "secret", "secret": run_secret(execution_id, str(entry["name"]))}


@lru_cache(maxsize=64)
def _redactor(known: frozenset[tuple[str, str]]) -> Redactor | None:
    """Return the redactor of these secrets. Commands of one playbook share it, so its patterns are compiled once."""
    from arclog.model.data.redact import Redactor

    return Redactor.of(dict(sorted(known)))


class AttemptSecrets:
    """The secrets that one attempt may use, and the redaction of its output."""

    def __init__(self, command: CommandSecrets) -> None:
        self._command = command
        self._resolved: dict[str, Credential] = {}
        #: the error outcome of an attempt whose secrets are not available; None if all are
        self.problem: Outcome | None = None
        self.auth: Credential | None = None

    @property
    def scope(self) -> dict[str, Any] | None:
        """The value of `keychain` in templates."""
        return {name: dict(secret.fields) for name, secret in self._resolved.items()} if self._resolved else None

    async def resolve(self, names: Iterable[str]) -> None:
        try:
            for name in names:
                self._resolved[name] = await self._command.resolve(name)
        except SecretUnavailable as problem:
            self.problem = self._failed(problem)

    async def authorize(self, config: Mapping[str, Any]) -> Outcome | None:
        """Resolve the entry that the task's `auth` names. Returns an error outcome if it is not available."""
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
        """Redact the outcome. A rejected credential is removed from the cache."""
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
