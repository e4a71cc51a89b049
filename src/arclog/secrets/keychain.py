"""Resolves keychain entries on this machine: from the environment, files, stored secrets, secret managers, or OAuth 2.

Every resolve reads its source again, so a rotated secret is used from the next attempt on. A secret of a secret manager
is cached for `secrets.manager_cache_s`, or until it is rejected. Messages name the entry, the source and the remedy,
never a value.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from arclog.drivers.postgres.address import AddressError, parts_of
from arclog.model.config.settings import Settings
from arclog.model.data.lru import LruCache
from arclog.model.errors import SecretUnavailable, SettingsError, StoreError
from arclog.ports.clock import Clock
from arclog.ports.secrets import Credential, SecretManager, SecretSource
from arclog.sandbox.confinement_settings import hidden_paths, own_variables
from arclog.secrets.files import Replaced, read_small
from arclog.secrets.managers.http import SecretNotThere
from arclog.secrets.naming import json_fields, widening
from arclog.secrets.oauth import Grant, Tokens, check_url
from arclog.secrets.seal import Seal

#: A number in a JSON secret is redacted if it has at least this many digits; a shorter one may be a port or a count.
_SECRET_DIGITS = 6

#: Not real files: the environment and memory of processes.
_PROCESSES = "/proc"

_Entry = Mapping[str, Any]


class LocalSecrets:
    """Implements `ports.secrets.Secrets`."""

    def __init__(
        self,
        sources: Sequence[SecretSource],
        seal: Seal,
        settings: Settings,
        clock: Clock,
        manager: Callable[[], SecretManager | None] = lambda: None,
    ) -> None:
        """The first source that has a secret provides it.

        `manager` returns the manager for `secret_manager` entries; None to use the sources for them, too.
        """
        self._sources = sources
        self._seal = seal
        self._tokens = Tokens(clock, settings)
        self._settings = settings
        self._clock = clock
        self._manager = manager
        self._most = settings.integer("secrets.max_bytes")
        self._own_variables = own_variables(settings)
        self._variables = _listed(settings.text("secrets.allow_env"))
        self._files = _listed(settings.text("secrets.allow_files"))

    async def check(self, entries: Sequence[_Entry], scope: str) -> list[str]:
        problems = []
        for entry in entries:
            try:
                if entry["kind"] == "oauth2":
                    await self._grant(entry, scope)  # a token is fetched when it is needed
                else:
                    await self._fields(entry, scope)
            except SecretUnavailable as problem:
                problems.append(str(_with_entry(entry, problem)))
        return problems

    async def resolve(self, entry: _Entry, scope: str) -> Credential:
        name, kind = str(entry["name"]), str(entry["kind"])
        try:
            if kind == "oauth2":
                return await self._oauth2(entry, scope)
            fields, hidden = await self._fields(entry, scope)
        except SecretUnavailable as problem:
            raise _with_entry(entry, problem) from None
        except StoreError as problem:
            raise _with_entry(entry, SecretUnavailable(str(problem), retryable=True)) from None
        return Credential(name, kind, fields, tuple(dict.fromkeys(hidden)))

    async def refused(self, entry: _Entry, scope: str) -> None:
        if entry["kind"] == "secret_manager" and self._managed is not None:
            self._managed.forget(str(entry.get("secret", entry["name"])), scope)
        if entry["kind"] != "oauth2":
            return
        try:
            self._tokens.forget(await self._grant(entry, scope))
        except SecretUnavailable as problem:
            raise _with_entry(entry, problem) from None
        except StoreError as problem:
            raise _with_entry(entry, SecretUnavailable(str(problem), retryable=True)) from None

    async def close(self) -> None:
        if "_managed" in vars(self) and self._managed is not None:
            await self._managed.close()

    @cached_property
    def _managed(self) -> ManagedSecrets | None:
        """The cached secrets of the secret manager, created when a playbook first uses it."""
        try:
            manager = self._manager()
        except SettingsError as problem:
            raise SecretUnavailable(str(problem), kind="config") from None
        return None if manager is None else ManagedSecrets(manager, self._settings, self._clock)

    async def _fields(self, entry: _Entry, scope: str) -> tuple[dict[str, Any], list[str]]:
        """Return the fields of an entry for templates, and the texts to redact."""
        name = str(entry["name"])
        match entry["kind"]:
            case "env":
                return _plain(self._env(str(entry.get("var", name))))
            case "file":
                text = self._file(str(entry["path"]))
                if entry.get("format") != "json":
                    return _plain(text)
                fields = json_fields(text)
                if fields is None:
                    raise SecretUnavailable(f"the file {entry['path']} is not a JSON object (format: json)")
                return dict(fields), [text, *_texts(fields)]
            case "secret":
                return _any(await self._kept(str(entry.get("secret", name)), scope))
            case "secret_manager":
                secret, managed = str(entry.get("secret", name)), self._managed
                return _any(await (self._kept(secret, scope) if managed is None else managed.get(secret, scope)))
            case "bearer":
                token = await self._text(entry.get("token", {"secret": name}), scope, "token")
                return {"token": token, "value": token, "header": f"Bearer {token}"}, [token]
            case "basic":
                return await self._basic(entry, scope)
            case "postgres_credential":
                return await self._postgres(entry, scope)
            case other:
                raise SecretUnavailable(f"there is no keychain kind {other!r}")

    async def _basic(self, entry: _Entry, scope: str) -> tuple[dict[str, Any], list[str]]:
        if "username" in entry or "password" in entry:
            if not ("username" in entry and "password" in entry):
                raise SecretUnavailable("set both username and password, or neither")
            user = await self._text(entry["username"], scope, "username")
            password = await self._text(entry["password"], scope, "password")
        else:
            fields = await self._object(str(entry["name"]), scope, ("username", "password"))
            user, password = fields["username"], fields["password"]
        return {"username": user, "password": password}, [password]

    async def _postgres(self, entry: _Entry, scope: str) -> tuple[dict[str, Any], list[str]]:
        own = {key: entry[key] for key in ("host", "port", "user", "dbname", "sslmode") if key in entry}
        if own or "password" in entry:
            if "password" in entry:
                own["password"] = await self._text(entry["password"], scope, "password")
            return own, [own["password"]] if "password" in own else []
        text = await self._text(entry.get("source", {"secret": entry["name"]}), scope, "source")
        fields = postgres_fields(text)
        if fields is None:
            raise SecretUnavailable("its source is neither a JSON object nor a connection URL nor `host=… user=…` text")
        hidden = [str(fields[key]) for key in ("password", "dsn", "passphrase", "sslpassword") if fields.get(key)]
        return fields, [text, *hidden]

    async def _oauth2(self, entry: _Entry, scope: str) -> Credential:
        grant = await self._grant(entry, scope)
        token = await self._tokens.get(grant)
        fields = dict.fromkeys(("access_token", "token", "value"), token.text)
        fields.update(token_type=token.kind, header=f"{token.kind} {token.text}")
        return Credential(str(entry["name"]), "oauth2", fields, (token.text, grant.client_secret))

    async def _grant(self, entry: _Entry, scope: str) -> Grant:
        needed = ("token_url", "client_id", "client_secret")
        grant: _Entry = entry
        if not any(key in entry for key in needed):
            grant = {**(await self._object(str(entry["name"]), scope, needed)), **entry}
            plain = {key: str(grant[key]) for key in needed}
        else:
            missing = [key for key in needed if key not in entry]
            if missing:
                raise SecretUnavailable(f"it lacks {', '.join(missing)}")
            plain = {key: await self._text(entry[key], scope, key) for key in needed}
        wrong = check_url(plain["token_url"])
        if wrong:
            raise SecretUnavailable(wrong)
        more = {key: str(grant[key]) for key in ("scope", "audience", "client_auth") if grant.get(key)}
        return Grant(**plain, **more)

    # -- sources ------------------------------------------------------------------------------------------------------

    async def _kept(self, name: str, scope: str) -> str:
        """Return a stored secret, decrypted."""
        for source in self._sources:
            sealed = await source.find(name, scope)
            if sealed is None:
                continue
            # The seal authenticates the name and the scope of the secret; check that they are the requested ones.
            if sealed.info.name != name or sealed.info.scope not in widening(scope):
                raise SecretUnavailable(f"{source.place} gave another secret than {name} in scope {scope}; report it")
            return self._seal.opened(sealed, source.place)
        raise SecretUnavailable(f"there is no secret {name} in scope {scope}; run: arclog secret set {name}")

    async def _text(self, source: Any, scope: str, name: str) -> str:
        """Return the text of a source; a plain text stands for itself."""
        if isinstance(source, str):
            return source
        if "env" in source:
            text = self._env(source["env"])
        elif "file" in source:
            text = self._file(source["file"])
        else:
            text = await self._kept(source["secret"], scope)
        key = source.get("key")
        if key is None:
            return text
        value = (json_fields(text) or {}).get(key)
        if not isinstance(value, (str, int, float)):
            raise SecretUnavailable(f"the source of {name} has no field {key!r} with a text")
        return str(value)

    async def _object(self, name: str, scope: str, needed: tuple[str, ...]) -> dict[str, Any]:
        """Return the fields of a stored secret that is a JSON object."""
        fields = json_fields(await self._kept(name, scope)) or {}
        missing = [key for key in needed if not isinstance(fields.get(key), str)]
        if missing:
            raise SecretUnavailable(
                f"the secret {name} must be a JSON object with {', '.join(needed)}; it lacks {', '.join(missing)}"
            )
        return fields

    def _env(self, variable: str) -> str:
        if any(fnmatchcase(variable, own) for own in self._own_variables):
            raise SecretUnavailable(f"the environment variable {variable} is arclog's own; give the secret another one")
        if self._variables and not any(fnmatchcase(variable, allowed) for allowed in self._variables):
            raise SecretUnavailable(
                f"the environment variable {variable} is not for playbooks (setting secrets.allow_env)"
            )
        text = os.environ.get(variable, "")
        if not text:
            how = "is not set" if variable not in os.environ else "is empty"
            raise SecretUnavailable(f"the environment variable {variable} {how}; export it before the run")
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise SecretUnavailable(f"the environment variable {variable} is not UTF-8") from None
        if size > self._most:
            raise SecretUnavailable(
                f"the environment variable {variable} is larger than {self._most} bytes (secrets.max_bytes)"
            )
        return text

    @cached_property
    def _hidden(self) -> tuple[str, ...]:
        return (_PROCESSES, *hidden_paths(self._settings))

    def _file(self, path: str) -> str:
        try:
            try:
                body = self._permitted(path)
            except Replaced:  # maybe by a new secret
                body = self._permitted(path)
            text = body.decode()
        except FileNotFoundError:
            where = "" if Path(path).expanduser().is_absolute() else f" in {Path.cwd()}"
            raise SecretUnavailable(f"there is no file {path}{where}") from None
        except UnicodeDecodeError:
            raise SecretUnavailable(f"the file {path} is not UTF-8") from None
        except (OSError, ValueError, RuntimeError) as problem:
            why = getattr(problem, "strerror", None) or problem
            raise SecretUnavailable(f"the file {path} cannot be read: {why}") from None
        # Editors end a file with a newline that is not part of the secret.
        text = text.removesuffix("\n").removesuffix("\r")
        if not text:
            raise SecretUnavailable(f"the file {path} is empty")
        return text

    def _permitted(self, path: str) -> bytes:
        """Return the content of a file, if playbooks may read it."""
        real = Path(os.path.realpath(Path(path).expanduser()))
        if any(real.is_relative_to(own) for own in self._hidden):
            raise SecretUnavailable(f"the file {path} is arclog's own, or a process's; playbooks cannot read it")
        allowed = [os.path.realpath(Path(file).expanduser()) for file in self._files]
        if allowed and not any(real.is_relative_to(folder) for folder in allowed):
            raise SecretUnavailable(f"the file {path} is not for playbooks (setting secrets.allow_files)")
        return read_small(real, self._most, is_real=True)


def _with_entry(entry: _Entry, problem: SecretUnavailable) -> SecretUnavailable:
    message = f"keychain entry {entry['name']} (kind {entry['kind']}): {problem}"
    return SecretUnavailable(message, retryable=problem.retryable, kind=problem.kind)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _plain(text: str) -> tuple[dict[str, Any], list[str]]:
    return {"value": text}, [text]


def _any(text: str) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of a JSON object; any other text becomes `value`."""
    fields = json_fields(text)
    return _plain(text) if fields is None else (fields, [text, *_texts(fields)])


def _texts(value: Any) -> Iterator[str]:
    """Return every text inside a JSON value, and numbers that are long enough to be secrets."""
    if isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, (int, float)) and len(str(value)) >= _SECRET_DIGITS:
        yield str(value)


# A PostgreSQL credential in one of its usual forms: a JSON object, a URL, or libpq's `key=value` text.


#: Field names in common use → libpq's names.
_ALIASES = {
    "username": "user",
    "database": "dbname",
    "db": "dbname",
    "hostname": "host",
    "db_host": "host",
    "db_port": "port",
    "db_user": "user",
    "db_password": "password",
    "db_name": "dbname",
    "connection_string": "dsn",
    "url": "dsn",
}


def postgres_fields(text: str) -> dict[str, Any] | None:
    """Return the fields of a PostgreSQL credential (host, port, user, password, dbname, sslmode …); None if it is none.

    `dsn` is included if the text was one.
    """
    fields = json_fields(text)
    if fields is not None:
        return _renamed(fields)
    return _of_dsn(text.strip())


def _renamed(fields: Mapping[str, Any]) -> dict[str, Any]:
    renamed = {_ALIASES.get(key, key): value for key, value in fields.items()}
    dsn = renamed.get("dsn")
    return {**(_of_dsn(dsn) or {}), **renamed} if isinstance(dsn, str) else renamed


def _of_dsn(dsn: str) -> dict[str, Any] | None:
    try:
        parts = parts_of(dsn)
    except AddressError:
        return None
    port = parts.get("port", "")
    return {"dsn": dsn, **parts, **({"port": int(port)} if port.isdecimal() else {})}


# A cache of a secret manager's answers: concurrent tasks that use the same secret share one request.


_MOST = 1_000
#: Seconds before an unreachable manager is asked again, so that tasks do not queue up behind its time limit.
_FAILED_S = 2.0


class _Kept(NamedTuple):
    until: float
    text: str = ""
    problem: SecretUnavailable | None = None


class ManagedSecrets:
    """Secrets of one manager by name and scope."""

    def __init__(self, manager: SecretManager, settings: Settings, clock: Clock) -> None:
        self._manager = manager
        self._clock = clock
        self._cache_s = settings.number("secrets.manager_cache_s")
        self._kept: LruCache[str, _Kept] = LruCache(_MOST)
        self._asking: dict[str, asyncio.Future[str]] = {}

    async def get(self, name: str, scope: str) -> str:
        """Return the secret of that name in the narrowest scope that has one. Raises SecretUnavailable."""
        looked = []
        for path in self._manager.paths.of(name, scope):
            try:
                return await self._read(path)
            except SecretNotThere:
                looked.append(path)
        message = f"{self._manager.place} has no secret {' or '.join(looked)}"
        raise SecretUnavailable(
            f"{message}; store it there (its name is defined by secrets.manager_path)", kind="config"
        )

    def forget(self, name: str, scope: str) -> None:
        """Remove a rejected secret from the cache: it may have been changed."""
        for path in self._manager.paths.of(name, scope):
            self._kept.pop(path)

    async def close(self) -> None:
        await self._manager.close()

    async def _read(self, path: str) -> str:
        cached = self._kept.get(path)
        if cached is not None and self._clock.monotonic() < cached.until:
            if cached.problem is not None:
                raise cached.problem
            return cached.text
        asking = self._asking.get(path)
        if asking is None:
            # A separate task: the first caller may be cancelled while others wait for the same answer.
            asking = self._asking[path] = asyncio.ensure_future(self._ask(path))
            asking.add_done_callback(lambda done: self._answered(path, done))
        return await asyncio.shield(asking)

    async def _ask(self, path: str) -> str:
        try:
            text = await self._manager.read(path)
        except SecretNotThere as problem:
            # Cached, because every task asks for the narrower scopes first.
            self._keep(path, _Kept(self._clock.monotonic() + self._cache_s, problem=problem))
            raise
        except SecretUnavailable as problem:
            self._keep(path, _Kept(self._clock.monotonic() + min(_FAILED_S, self._cache_s), problem=problem))
            if problem.kind == "auth":
                self._manager.forget()  # log in again next time
            raise
        self._keep(path, _Kept(self._clock.monotonic() + self._cache_s, text))
        return text

    def _keep(self, path: str, kept: _Kept) -> None:
        if self._cache_s:
            self._kept.replace(path, kept)

    def _answered(self, path: str, done: asyncio.Future[str]) -> None:
        self._asking.pop(path, None)
        if not done.cancelled():
            done.exception()  # retrieved here to avoid a warning; the waiting callers have it
