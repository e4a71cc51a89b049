"""Runs http tasks. One attempt is one request and the redirects that follow from it.

Invariant: an attempt ends with an outcome that names the request, and its connection is returned or closed.
"""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import Any

import httpcore2
from msgspec import Struct
from msgspec.json import encode

from arclog.drivers.failure import Failure, shortened
from arclog.drivers.http.client import Client, Message, Timeouts, pieces
from arclog.drivers.http.guard import SETTING, Guard
from arclog.model.config.settings import Settings
from arclog.model.errors import ResultUnavailable
from arclog.model.ids import traceparent
from arclog.model.outcome import ERROR, OK, Outcome, TaskError, error, result_error
from arclog.ports.tool import TaskContext
from arclog.tools.http.failure import of_exception, of_status, retry_after
from arclog.tools.http.kind import HttpConfig
from arclog.tools.http.request import described, first_message, next_message
from arclog.tools.http.response import Body, Limits, Reader

_CLIENT_TROUBLE = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, httpcore2.ProxyError)


class HttpTool:
    """Runs http tasks on the connections of one client."""

    Config: type[Struct] = HttpConfig

    def __init__(self, settings: Settings) -> None:
        self._client = Client(settings, Guard(settings.text(SETTING)))
        self._connect_s = settings.number("http.connect_timeout_s")
        self._max_redirects = settings.integer("http.max_redirects")
        self._max_header_bytes = settings.integer("http.max_header_bytes")
        self._traced = bool(settings.text("telemetry.otlp_endpoint"))
        self._max_retry_after_s = settings.number("http.max_retry_after_s")
        self._limits = Limits(settings.integer("http.max_body_bytes"), settings.integer("results.max_bytes"))

    async def run(self, config: HttpConfig, context: TaskContext) -> Outcome:
        timeouts = self._timeouts(context)
        message: Message | None = None
        try:
            message = first_message(config, context)
            if self._traced:
                message.headers.setdefault("traceparent", traceparent(context.execution_id, context.key))
            for redirects in range(self._max_redirects + 1):
                response = await self._client.send(message, timeouts, verify=config.verify)
                try:
                    headers = self._headers(response)
                    onward = next_message(message, response.status, headers) if config.follow_redirects else None
                    if onward is None:
                        return await self._outcome(message, response, headers, config, context, redirects)
                finally:
                    await response.aclose()
                message = onward
            raise Failure(self._endless(message))
        except Failure as failure:
            return _failed(failure.problem, message)
        except ResultUnavailable as lost:
            return _failed(result_error(lost), message)
        except _CLIENT_TROUBLE as trouble:
            request = described(message) if message else config.method
            return _failed(of_exception(trouble, request, timeouts), message)

    async def execution_ended(self, execution_id: str) -> None:
        """Connections do not belong to a run."""

    async def close(self) -> None:
        await self._client.close()

    def _timeouts(self, context: TaskContext) -> Timeouts:
        timeout = context.spec.get("timeout")
        parts = timeout if isinstance(timeout, dict) else {}
        return Timeouts(
            float(parts.get("connect") or min(self._connect_s, context.timeout_s)),
            float(parts.get("read") or context.timeout_s),
        )

    def _headers(self, response: httpcore2.Response) -> dict[str, str]:
        """Return the response headers by lower-case name. Repeated headers are joined."""
        headers: dict[str, str] = {}
        size = 0
        for name, value in response.headers:
            size += len(name) + len(value)
            lower, text = name.decode("latin-1").lower(), _text(value)
            headers[lower] = f"{headers[lower]}, {text}" if lower in headers else text
        if size > self._max_header_bytes:
            message = f"the answer has {size:,} bytes of headers, and {self._max_header_bytes:,} are taken"
            code = "http.max_header_bytes"
            raise Failure(error("limit", f"{message} (setting {code})", code=code))
        return headers

    async def _outcome(
        self, message: Message, response: httpcore2.Response, headers: dict[str, str], config: HttpConfig,
        context: TaskContext, redirects: int,
    ) -> Outcome:  # fmt: skip
        status = response.status
        timeouts = self._timeouts(context)
        url = message.target.text
        meta: dict[str, Any] = {"redirects": redirects} if redirects else {}
        wait_s = retry_after(status, headers, time.time(), self._max_retry_after_s)
        if wait_s is not None:
            meta["retry_after_s"] = wait_s
        body = Body()
        if message.method != "HEAD":
            try:
                async with aclosing(pieces(response, timeouts.read)) as raw:
                    body = await Reader(raw, headers, context).read(config, self._limits, lenient=status >= 400)
                if body.problem is not None:
                    body = body._replace(problem=_within(body.problem, message))
            except Failure as failure:
                body = Body(problem=_within(failure.problem, message))
            except _CLIENT_TROUBLE as trouble:
                body = Body(problem=of_exception(trouble, described(message), timeouts))
        problem = of_status(status, described(message), _body_text(body)) or body.problem
        result: dict[str, Any] = {"status_code": status, "headers": headers, "url": url}
        if body.stored is None:
            result["data"] = body.data
        return Outcome(
            OK if problem is None else ERROR,
            result,
            data_at="data",
            stored=body.stored,
            error=problem,
            meta=meta,
            helper={"http": {"status": status, "headers": headers, "url": url}},
        )

    def _endless(self, message: Message) -> TaskError:
        text = f"more than {self._max_redirects} redirects, the last to {shortened(message.target.text)}"
        return error("limit", f"{text} (setting http.max_redirects)", code="http.max_redirects")


def _failed(problem: TaskError, message: Message | None) -> Outcome:
    url = None if message is None else message.target.text
    return Outcome(ERROR, error=problem, helper={"http": {"status": None, "headers": None, "url": url}})


def _within(problem: TaskError, message: Message) -> TaskError:
    return TaskError(problem.kind, f"{described(message)}: {problem.message}", problem.code, problem.retryable)


def _body_text(body: Body) -> str:
    """Return the text of a response, for an error message."""
    if body.stored is not None:
        return body.stored.preview
    data = body.data
    if isinstance(data, dict):
        for key in ("error", "message", "detail", "title", "error_description"):
            if isinstance(data.get(key), str) and data[key]:
                return str(data[key])
    if data is None:
        return ""
    return data if isinstance(data, str) else encode(data).decode("utf-8")


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")
