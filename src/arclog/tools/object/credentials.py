"""What a task's `auth` gives a cloud, by the names that each cloud uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from arclog.ports.secrets import Credential
from arclog.tools.object.location import refuse

#: field as the store takes it → the names that it may have in a credential
_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "s3": {
        "access_key_id": ("access_key_id", "aws_access_key_id", "access_key", "username"),
        "secret_access_key": ("secret_access_key", "aws_secret_access_key", "secret_key", "password"),
        "session_token": ("session_token", "aws_session_token"),
        "region": ("region",),
        "endpoint": ("endpoint",),
    },
    "gs": {
        "token": ("token", "access_token"),
        "service_account": ("service_account", "service_account_key"),
        "endpoint": ("endpoint",),
    },
    "az": {
        "account_name": ("account_name", "account", "username"),
        "account_key": ("account_key", "access_key", "password"),
        "sas_key": ("sas_key", "sas_token"),
        "token": ("token", "access_token"),
        "client_id": ("client_id",),
        "client_secret": ("client_secret",),
        "tenant_id": ("tenant_id",),
        "endpoint": ("endpoint",),
    },
}
#: Sets of fields of which one must be there whole.
_NEEDED: dict[str, tuple[tuple[str, ...], ...]] = {
    "s3": (("access_key_id", "secret_access_key"),),
    "gs": (("token",), ("service_account",)),
    "az": (
        ("account_name", "account_key"),
        ("account_name", "sas_key"),
        ("account_name", "token"),
        ("account_name", "client_id", "client_secret", "tenant_id"),
    ),
}


def fields_for(scheme: str, auth: Credential | None) -> dict[str, str]:
    """The credential's fields by the store's names; {} without an `auth`."""
    if auth is None:
        return {}
    given = _given(scheme, auth)
    found: dict[str, str] = {}
    for field, names in _NAMES[scheme].items():
        for name in names:
            value = given.get(name)
            if isinstance(value, str) and value:
                found.setdefault(field, value)
    if not any(all(field in found for field in needed) for needed in _NEEDED[scheme]):
        wanted = " or ".join(" + ".join(needed) for needed in _NEEDED[scheme])
        raise refuse(
            "config",
            f"auth {auth.name!r} ({auth.kind}) does not suit {scheme}://: it has to give {wanted} "
            "(as its fields, or as one JSON text)",
        )
    return found


def _given(scheme: str, auth: Credential) -> Mapping[str, Any]:
    value = auth.fields.get("value")
    if not isinstance(value, str):
        return auth.fields
    try:
        parsed = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        # A scalar secret can only be a token.
        return {"token": value} if scheme != "s3" else {}
    if parsed.get("type") == "service_account":
        return {"service_account": value}
    return parsed
