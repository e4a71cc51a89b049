"""Lint of task fields: http requests that cannot be meant, and secrets that are written out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from arclog.model.config.kinds import OUTPUT_NAME
from arclog.playbook.canon import Task
from arclog.playbook.schema import has_template
from arclog.playbook.walk import Findings
from arclog.playbook.yaml.document import Path

METHODS = (
    "GET",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "QUERY",
    "PROPFIND",
    "REPORT",
)
_BODIES = ("json", "form", "multipart", "body", "content")
#: scheme://user:password@host, where the password is not a template. Every part is bounded, so that a long text costs linear time.
_PASSWORD = re.compile(r"\b[a-z][a-z0-9+.-]{0,20}://[^/\s:@{}]{1,100}:([^@\s{}]{1,200})@", re.IGNORECASE)
_KEYWORD_PASSWORD = re.compile(r"\bpassword\s*=\s*(?!['\"]?\{\{)([^\s;'\"{}]+)", re.IGNORECASE)
_BEARER = re.compile(r"^\s*(Bearer|Basic|Token)\s+(?!\{\{)[A-Za-z0-9._~+/=-]{8,}\s*$")
_SECRET_KEYS = re.compile(r"(password|passwd|api[_-]?key|secret|token)$", re.IGNORECASE)
_KEYCHAIN = "declare it under keychain: and write {{ keychain.NAME.value }}, or name the entry with auth:"


def lint_task(task: Task, findings: Findings) -> None:
    """Add what the fields of one task show."""
    if task.kind.name == "http":
        _request(task, findings)
    if isinstance(outputs := task.config.get("outputs"), dict):
        _outputs(task, outputs, findings)
    for inner, text in _texts(task.config):
        if inner[:1] in (("code",), ("command",), ("script",)) and len(text) > 2_000:
            continue
        _secret(inner, text, task, findings)


def _request(task: Task, findings: Findings) -> None:
    config = task.config
    bodies = [key for key in _BODIES if key in config and config[key] is not None]
    if len(bodies) > 1:
        message = f"a request has one body, not {' and '.join(bodies)}"
        findings.key("two-bodies", message, task.locate((bodies[1],)), f"keep {bodies[0]} or {bodies[1]}", "warning")
    method = config.get("method")
    if isinstance(method, str) and not has_template(method) and method.upper() not in METHODS:
        near = findings.nearest(method.upper(), METHODS)
        hint = f"did you mean {near}?" if near else f"the usual ones: {', '.join(METHODS[:6])}"
        findings.value(
            "http-method", f"method: {method[:40]!r} is not a HTTP method", task.locate(("method",)), hint, "warning"
        )
    elif isinstance(method, str) and method.upper() in ("GET", "HEAD") and bodies:
        message = f"a {method.upper()} request with {bodies[0]}: most servers ignore its body"
        findings.key("http-body", message, task.locate((bodies[0],)), "method: POST, or give it as params:", "warning")
    url = config.get("url")
    if isinstance(url, str) and url.strip() and not url.lstrip().startswith("{{") and not re.match(r"https?://", url):
        scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", url)
        message = f"url: {url[:60]!r} has {'the scheme ' + scheme[1] if scheme else 'no scheme'}"
        hint = "http:// or https://" if scheme else f"did you mean https://{url[:60].lstrip('/')}?"
        findings.value("url-scheme", message, task.locate(("url",)), hint, "warning")


def _outputs(task: Task, outputs: dict[str, Any], findings: Findings) -> None:
    for name, path in outputs.items():
        where = task.locate(("outputs", name))
        if not OUTPUT_NAME.fullmatch(name):
            hint = "letters, digits and _, at most 64, no digit first"
            findings.key("output-name", f"outputs: {name[:40]!r} cannot be the name of a file", where, hint)
        elif not isinstance(path, str) or not path:
            findings.value(
                "output-path", f"outputs.{name} must be the path of a file", where, "for example out/report.csv"
            )
        elif not has_template(path) and (path.endswith("/") or ".." in path.split("/")):
            hint = "a file in the working directory, or $ARCLOG_SCRATCH/name"
            findings.value(
                "output-path", f"outputs.{name}: {path[:60]!r} is not a file in the task's folders", where, hint
            )


def _texts(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _texts(part, (*path, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _texts(part, (*path, index))


def _secret(inner: Path, text: str, task: Task, findings: Findings) -> None:
    where = task.locate(inner)
    if _BEARER.match(text):
        scheme = text.split(maxsplit=1)[0]
        findings.value(
            "literal-secret", f"{inner[-1]}: a {scheme} credential is written out", where, _KEYCHAIN, "warning"
        )
    elif _PASSWORD.search(text) or (inner[-1] in ("dsn", "connection", "url") and _KEYWORD_PASSWORD.search(text)):
        findings.value("literal-secret", f"{inner[-1]}: a password is written out", where, _KEYCHAIN, "warning")
    elif (
        len(inner) > 1
        and isinstance(inner[-1], str)
        and _SECRET_KEYS.search(inner[-1])
        and inner[0] in ("headers", "params", "env", "auth", "connection")
        and len(text) >= 8
        and not has_template(text)
    ):
        findings.value("literal-secret", f"{inner[-1]}: a secret is written out", where, _KEYCHAIN, "warning")
