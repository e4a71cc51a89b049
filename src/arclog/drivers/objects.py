"""Options for connections and retries, and the parsing of errors, that all clients of object stores (obstore) share.

obstore's error texts repeat the request, so messages contain only what `report_of` extracts.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, NamedTuple

_STATUS = re.compile(r"status code: (\d{3})|status: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9._-]{1,80})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,200})</Message>")
_LATE = re.compile(r"TimedOut|timed out")
#: obstore has no value for "no limit".
_NEVER = timedelta(days=365)
_FIRST_PAUSE = timedelta(seconds=0.1)
_LONGEST_PAUSE = timedelta(seconds=2)


class Report(NamedTuple):
    """The server's response, extracted from an error of obstore."""

    #: 0 without a response
    status: int
    #: the server's error code; '' if there is none
    code: str
    #: its message; '' if there is none
    message: str
    late: bool


def report_of(problem: Exception) -> Report:
    text = str(problem)
    status, code, message = (pattern.search(text) for pattern in (_STATUS, _CODE, _MESSAGE))
    return Report(
        int(status[1] or status[2]) if status else 0,
        code[1] if code else "",
        message[1] if message else "",
        _LATE.search(text) is not None,
    )


def client_config(
    *,
    allow_http: bool,
    connect_s: float,
    retries: int,
    retry_s: float,
    timeout_s: float | None = None,
    read_s: float | None = None,
    proxy: str = "",
) -> dict[str, Any]:
    """Return the keyword arguments of an obstore store. `proxy` is the route of a forwarder, whose guard checks
    connections.
    """
    options: dict[str, Any] = {
        "allow_http": allow_http,
        "timeout": _NEVER if timeout_s is None else timedelta(seconds=timeout_s),
        "connect_timeout": timedelta(seconds=connect_s),
        "user_agent": "arclog",
    }
    if read_s is not None:
        options["read_timeout"] = timedelta(seconds=read_s)
    if proxy:
        options["proxy_url"] = proxy
    retry = {
        "max_retries": retries,
        "retry_timeout": timedelta(seconds=retry_s),
        "backoff": {"init_backoff": _FIRST_PAUSE, "max_backoff": _LONGEST_PAUSE, "base": 2},
    }
    return {"client_options": options, "retry_config": retry}
