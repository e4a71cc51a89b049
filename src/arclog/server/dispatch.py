"""Finds the handler of a request's operation, calls it, and converts its result to a response.

Plain ASGI. A path is looked up in a dictionary, or segment by segment if it has parameters. Then the caller is
authenticated, parameters and body are decoded by the operation's types, and the handler is called. Every exception
becomes a problem (RFC 9457) in one place.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from arclog.engine.commits.quarantine import REPEATED
from arclog.model.errors import ArclogError, InvariantBroken, NotAllowed, NotHolder, RequestRejected, Unauthenticated
from arclog.model.principal import may_act_for_the_tenant
from arclog.operations.operation import ATTEMPT_HEADER, DECODED, JSON, PRODUCE, SERVER_HEADER, WORK, NoParams, Operation
from arclog.server.call import LOOKING, Call
from arclog.server.connections import SEND_WHOLE
from arclog.server.headers import SECURITY, respond
from arclog.server.problems import answer_of, hide_places, problem
from arclog.server.services import Services

# ── parameters ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Path and query parameters of an operation, from text to its struct.


_PLACE = re.compile(r" - at `\$\.(\w+).*`$", re.DOTALL)
_MISSING = re.compile(r"missing required field `(\w+)`")
#: Words for booleans besides true, false, 1 and 0.
_TRUTH = {
    "yes": "true",
    "y": "true",
    "on": "true",
    "t": "true",
    "no": "false",
    "n": "false",
    "off": "false",
    "f": "false",
}


class ParameterMistake(RequestRejected):
    """A parameter that is missing or invalid."""

    def __init__(self, at: str, message: str) -> None:
        super().__init__(f"the request is invalid: {at}: {message}")
        self.at = at
        self.message = message


class Parameters:
    """Reads the parameters of one operation."""

    def __init__(self, operation: Operation[Any]) -> None:
        self._kind: type[Struct] = operation.params
        self._path_names = frozenset(operation.path_names)
        (_,), components = msgspec.json.schema_components([self._kind])
        schema: dict[str, dict[str, Any]] = components[self._kind.__name__].get("properties", {})
        self._queried = frozenset(schema) - self._path_names
        self._lists = frozenset(name for name, of in schema.items() if of.get("type") == "array")
        self._truths = frozenset(name for name, of in schema.items() if of.get("type") == "boolean")
        self._patterned = frozenset(name for name, of in schema.items() if "pattern" in of)

    def read(self, path_values: Mapping[str, str], query: bytes) -> Struct:
        """The parameters of a request. Raises ParameterMistake."""
        values: dict[str, Any] = dict(path_values)
        for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True) if query else ():
            if name not in self._queried:
                continue
            if name in self._lists:
                values.setdefault(name, []).append(value)
            elif name in self._truths:
                values[name] = _TRUTH.get(value.lower(), value)
            else:
                values[name] = value
        try:
            params = msgspec.convert(values, self._kind, strict=False)
        except msgspec.ValidationError as problem:
            raise self._mistake(str(problem)) from None
        for name in self._patterned & values.keys():
            if values[name].endswith("\n"):  # `$` matches before the last line's end, too
                raise ParameterMistake(self._at(name), "Expected no line break")
        return params

    def _mistake(self, problem: str) -> ParameterMistake:
        missing = _MISSING.search(problem)
        if missing is not None:
            return ParameterMistake(self._at(missing[1]), "it is required")
        place = _PLACE.search(problem)
        return ParameterMistake(self._at("" if place is None else place[1]), _PLACE.sub("", problem))

    def _at(self, name: str) -> str:
        return f"{'path' if name in self._path_names else 'query'}.{name}"


@cache
def _parameters_of(operation: Operation[Any]) -> Parameters:
    """Made once: the servers of one process have the same operations."""
    return Parameters(operation)


# ── dispatch ──────────────────────────────────────────────────────────────────────────────────────────────────────────


log = logging.getLogger("arclog.server")

H = TypeVar("H", bound=Callable[..., Awaitable[Any]])

#: Errors that are denials; they are recorded in the audit.
DENIALS = (NotAllowed, NotHolder, Unauthenticated)
#: Granted requests of these roles are not in the audit: each report and event is in the log, with its sender.
_IN_THE_LOG = (WORK, PRODUCE)
_YAML = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})
_ATTEMPT = ATTEMPT_HEADER.lower()
_JSON_HEADER = (b"content-type", JSON.encode())
#: Size from which a body is not read if the request is for another process.
_MOST_UNUSED = 256 * 1024
_NO_CONTENT = int(HTTPStatus.NO_CONTENT)
_SERVER = SERVER_HEADER.lower().encode()


class Reply(NamedTuple):
    """A response with its own status or headers."""

    value: Any
    status: int
    headers: Mapping[str, str] = {}


class _TooMuch(Exception):
    """A body is too large to be read for nothing."""


async def _stop(_: bytes) -> None:
    raise _TooMuch


class _Constant:
    """Headers of JSON responses besides their length, which are the same for every response of an operation."""

    __slots__ = ("headers", "lines", "more")

    def __init__(self, more: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        self.more = more
        self.headers = (_JSON_HEADER, *more, *SECURITY)
        self.lines = b"".join(b"%s: %s\r\n" % header for header in self.headers)


_NO_MORE = _Constant()


class _Encoded(NamedTuple):
    """An encoded response."""

    status: int
    #: all headers but the length of the body
    headers: Sequence[tuple[bytes, bytes]]
    #: None if the status allows none
    body: bytes | None
    #: the headers as lines, if all of them are constants
    lines: bytes = b""


# -- handlers ----------------------------------------------------------------------------------------------------------

_HANDLERS: dict[Operation[Any], Callable[..., Awaitable[Any]]] = {}


def handles(*operations: Operation[Any]) -> Callable[[H], H]:
    """Make a function the handler of operations. It is called with the Call, then with the parameters if the operation
    has any, then with the decoded body if there is one; it returns the response value, a Reply, or a Response.
    """

    def register(handler: H) -> H:
        for operation in operations:
            if operation in _HANDLERS:
                raise InvariantBroken(f"the operation {operation.name} has two handlers")
            _HANDLERS[operation] = handler
        return handler

    return register


class Route:
    """An operation with everything that is needed to handle it."""

    __slots__ = ("decoder", "handler", "is_audited", "operation", "parameters", "path_names")

    def __init__(self, operation: Operation[Any]) -> None:
        handler = _HANDLERS.get(operation)
        if handler is None:
            raise InvariantBroken(f"the operation {operation.name} has no handler")
        self.operation = operation
        self.handler = handler
        self.path_names = operation.path_names
        self.parameters = None if operation.params is NoParams else _parameters_of(operation)
        self.decoder: msgspec.json.Decoder[Any] | None = None
        if operation.takes is not None and operation.reading == DECODED:
            self.decoder = msgspec.json.Decoder(operation.takes, strict=not operation.lax)
        self.is_audited = operation.method not in LOOKING and operation.access not in _IN_THE_LOG

    async def answer(self, call: Call) -> Any:
        """Authorize the caller and return the handler's result."""
        operation = self.operation
        if operation.access is not None:
            principal = await call.admit(operation.access)
            if operation.tenant_wide:
                may_act_for_the_tenant(principal)
            if self.is_audited:
                await call.services.audit.note(call, principal, "granted")
        arguments: list[Any] = []
        if self.parameters is not None:
            arguments.append(self.parameters.read(call.path_values, call.scope["query_string"]))
        if self.decoder is not None:
            arguments.append(await self._body(call, self.decoder))
        return await self.handler(call, *arguments)

    async def _body(self, call: Call, decoder: msgspec.json.Decoder[Any]) -> Any:
        """The body by the operation's type; an empty one is `{}`. A playbook may be sent as YAML."""
        if self.operation.yaml_field:
            media = call.headers.get("content-type", "").partition(";")[0].strip().lower()
            if media in _YAML:
                return self.operation.takes(**{self.operation.yaml_field: _text(await call.raw_body())})
        return await call.decoded_json(await call.raw_body(count_values=True) or b"{}", decoder.decode)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as problem:
        raise RequestRejected(f"the body is not UTF-8: {problem.reason} at byte {problem.start}") from None


# -- finding a route ---------------------------------------------------------------------------------------------------


class _Node:
    """A node in the tree of paths with parameters."""

    __slots__ = ("any", "methods", "parts")

    def __init__(self) -> None:
        self.parts: dict[str, _Node] = {}
        self.any: _Node | None = None
        self.methods: dict[str, Route] = {}


class Routes:
    """The routes of operations, by path and method."""

    def __init__(self, operations: Iterable[Operation[Any]]) -> None:
        self._plain: dict[str, dict[str, Route]] = {}
        self._tree = _Node()
        for operation in operations:
            methods = self._methods(operation.path)
            if operation.method in methods:
                raise InvariantBroken(f"two operations are {operation.method} {operation.path}")
            methods[operation.method] = Route(operation)

    def _methods(self, path: str) -> dict[str, Route]:
        if "{" not in path:
            return self._plain.setdefault(path, {})
        node = self._tree
        for part in path.split("/"):
            if part.startswith("{"):
                node.any = node.any or _Node()
                node = node.any
            else:
                node = node.parts.setdefault(part, _Node())
        return node.methods

    def find(self, path: str) -> tuple[Mapping[str, Route], Sequence[str]]:
        """The routes of a path by method, and the values of its parameters; no routes if the path does not exist."""
        methods = self._plain.get(path)
        if methods is not None:
            return methods, ()
        node = self._tree
        values: list[str] = []
        for part in path.split("/"):
            following = node.parts.get(part)
            if following is None and part:
                following = node.any
                values.append(part)
            if following is None:
                return {}, ()
            node = following
        return node.methods, values


# -- answering ---------------------------------------------------------------------------------------------------------


class Dispatcher:
    """The ASGI application for a table of operations."""

    def __init__(self, services: Services, operations: Iterable[Operation[Any]]) -> None:
        self._services = services
        self._routes = Routes(operations)
        self._name = os.urandom(4).hex()
        #: the header that names this server in responses to workers
        self._named = _Constant(((_SERVER, self._name.encode()),))

    def is_urgent(self, scope: Scope) -> bool:
        """Return whether a request is for an operation that must be served even when the server is busy."""
        route = self._routes.find(scope["path"])[0].get(scope["method"])
        return route is not None and route.operation.urgent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        methods, values = self._routes.find(scope["path"])
        route = methods.get(scope["method"])
        if route is None:
            await respond(_not_there(scope, methods), scope, receive, send)
            return
        operation = route.operation
        call = Call(
            self._services,
            operation,
            dict(zip(route.path_names, values, strict=True)) if values else {},
            scope,
            receive,
        )
        answer: Response | _Encoded
        repeated = REPEATED.set(True) if _ATTEMPT in call.headers else None
        try:
            if operation.access is not WORK:
                answer = _answered(operation, await route.answer(call), _NO_MORE)
            elif call.headers.get(SERVER_HEADER.lower(), self._name) == self._name:
                answer = _answered(operation, await route.answer(call), self._named)
            else:
                answer = await self._misdirected(call)
        except ArclogError as error:
            answer = await self._refusal(call, error)
        except HTTPException as error:
            answer = _plain_problem(error.status_code, str(error.detail))
        except Exception as error:
            log.exception("%s %s", scope["method"], scope["path"])
            answer = problem(
                500, "InternalError", f"internal error: {type(error).__name__}; the server's log has details"
            )
        finally:
            if repeated is not None:
                REPEATED.reset(repeated)
        if isinstance(answer, Response):
            await respond(answer, scope, receive, send)
        else:
            await _send(answer, scope, send)

    async def _misdirected(self, call: Call) -> Response:
        """Refuse a request for another process. Its body is read, so that the connection can be used again, unless it is
        larger than those of clients that name a process.
        """
        await call.admit(WORK)
        with suppress(_TooMuch):
            await call.raw_body(_MOST_UNUSED, _stop)
        answer = _plain_problem(421, "another process of this server is to carry this request out")
        answer.headers[SERVER_HEADER] = self._name
        return answer

    async def _refusal(self, call: Call, error: ArclogError) -> Response:
        """The problem for an error; a denial is recorded in the audit."""
        if isinstance(error, ParameterMistake):
            faults = [{"at": error.at, "message": error.message}]
            return problem(422, "RequestRejected", str(error), findings=faults)
        if isinstance(error, DENIALS):
            try:
                await self._services.audit.note(call, call.known_principal, "denied", str(error))
            except ArclogError as failure:
                return answer_of(failure)
        hide_places(error, self._services.settings, f"{call.method} {call.path}")
        return answer_of(error)


def _answered(operation: Operation[Any], value: Any, constant: _Constant) -> Response | _Encoded:
    """Return the response for a handler's result."""
    if isinstance(value, Response):
        return value
    status, more, headers, lines = operation.status, constant.more, constant.headers, constant.lines
    if type(value) is Reply:
        status = value.status
        if value.headers:
            more += tuple((name.lower().encode(), text.encode()) for name, text in value.headers.items())
            headers, lines = (_JSON_HEADER, *more, *SECURITY), b""
        value = value.value
    if status == _NO_CONTENT:
        return _Encoded(status, (*more, *SECURITY), None)
    return _Encoded(status, headers, msgspec.json.encode(value), lines)


async def _send(answer: _Encoded, scope: Scope, send: Send) -> None:
    status, headers, body, lines = answer
    if body is None:
        body = b""
    else:
        send_whole = scope.get(SEND_WHOLE) if lines and scope["method"] != "HEAD" else None
        if send_whole is not None and send_whole(status, b"content-length: %d\r\n%s" % (len(body), lines), body):
            return
        headers = ((b"content-length", b"%d" % len(body)), *headers)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _not_there(scope: Scope, methods: Mapping[str, Route]) -> Response:
    detail = f"there is no route {scope['method']} {scope['path']}; /api/docs lists all routes"
    answer = _plain_problem(405 if methods else 404, detail)
    if methods:
        answer.headers["Allow"] = ", ".join(sorted(methods))
    return answer


def _plain_problem(status: int, detail: str) -> Response:
    return problem(status, HTTPStatus(status).phrase.replace(" ", ""), detail)
