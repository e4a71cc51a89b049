"""AWS Signature Version 4 of a request with a body and no query, as its documentation describes it. Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

_ALGORITHM = "AWS4-HMAC-SHA256"


def signed(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    access_key: str,
    secret_key: str,
    session_token: str,
    region: str,
    service: str,
    at: str,
) -> dict[str, str]:
    """The headers of a request with its signature. `at` is the time as 20150830T123600Z."""
    parts = urlsplit(url)
    sent = {**headers, "Host": parts.netloc, "X-Amz-Date": at}
    if session_token:
        sent["X-Amz-Security-Token"] = session_token
    lines = {name.lower(): " ".join(value.split()) for name, value in sent.items()}
    names = ";".join(sorted(lines))
    canonical = "\n".join(
        [
            method,
            parts.path or "/",
            parts.query,
            *(f"{name}:{lines[name]}" for name in sorted(lines)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        ]
    )
    scope = f"{at[:8]}/{region}/{service}/aws4_request"
    to_sign = "\n".join([_ALGORITHM, at, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret_key}".encode()
    for part in (at[:8], region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    sent["Authorization"] = (
        f"{_ALGORITHM} Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    del sent["Host"]  # the client sends it
    return sent
