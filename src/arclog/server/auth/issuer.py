"""Requests to the issuer of tokens: small answers, no redirects, within a time, and only where the network guard allows."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from urllib.parse import quote_plus, urlencode, urlsplit

from arclog.drivers.addresses import shown
from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError
from arclog.server.auth.addresses import is_loopback


def require_https(url: str, what: str) -> None:
    """Raise SettingsError for an address that others can read or change on the way."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        raise SettingsError(f"{what} is not an address; use https://… or the path of a file") from None
    if url.startswith("http://") and not is_loopback(host):
        raise SettingsError(f"{what} {shown(url)} is not https: an attacker on the network could substitute keys")


async def fetch(
    settings: Settings,
    url: str,
    *,
    timeout_s: float,
    form: Mapping[str, str] | None = None,
    client: tuple[str, str] | None = None,
) -> bytes:
    """The body of an answer with status 200. With a form it is a POST, `client` is sent as basic authentication. Raises
    OSError or ValueError.
    """
    from arclog.drivers.http.fetch import Fetcher, NoAnswer, TooLarge
    from arclog.drivers.http.guard import guard_of

    max_bytes = settings.integer("auth.jwt_keys_max_bytes")
    headers, body = {"accept": "application/json"}, None
    if form is not None:
        headers["content-type"] = "application/x-www-form-urlencoded"
        body = urlencode(form).encode()
    if client is not None:
        # RFC 6749, 2.3.1: both are form-encoded before they are joined.
        pair = ":".join(quote_plus(part) for part in client)
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    guard = guard_of(settings, "network.allow_networks", "requests to token issuers")
    # Asked rarely: no connection is kept.
    fetcher = Fetcher(settings, guard, timeout_s=timeout_s, max_bytes=max_bytes, proxies=False)
    try:
        answer = await fetcher.ask("GET" if body is None else "POST", url, headers=headers, body=body)
    except TooLarge:
        raise ValueError(f"more than {max_bytes} bytes (auth.jwt_keys_max_bytes)") from None
    except NoAnswer as problem:
        raise OSError(str(problem)) from None
    finally:
        await fetcher.close()
    if answer.status != 200:
        raise ValueError(f"the answer is {answer.status}{_error_code(answer.body)}")
    return answer.body


def _error_code(body: bytes) -> str:
    """The code of an OAuth error (RFC 6749, 5.2), in parentheses."""
    import msgspec

    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return ""
    error = answer.get("error") if isinstance(answer, dict) else None
    return f" ({error[:100]})" if isinstance(error, str) and error.isprintable() else ""
