"""The commands `key` and `audit`: API keys, and the requests that were granted and denied.

On a home they use the store directly: a user who may write there needs no key, and sees all tenants. At a server they
require the role admin, and show its tenant. A key is printed once, when it is created.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from arclog.cli.exits import OK, Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.model.config.settings import Settings
    from arclog.ports.storage.access import KeyInfo
    from arclog.wiring.access import Access

_SPAN = re.compile(r"([1-9][0-9]{0,5})([smhdwy])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}


def key_arguments(parser: Parser) -> None:
    from arclog.model.principal import ROLES

    parser.add_argument("action", choices=("create", "list", "revoke"), help="create a key, list keys, revoke a key")
    parser.add_argument("key_id", metavar="ID", nargs="?", help="revoke: the key's public id (or the key itself)")
    parser.add_argument("--name", metavar="NAME", help="create: name of the key's holder in logs and signals")
    parser.add_argument(
        "--role", metavar="ROLE", action="append", choices=ROLES, help=f"create: one of {', '.join(ROLES)}; repeatable"
    )
    parser.add_argument(
        "--tenant", metavar="T", help="tenant of the key (default: from the settings); list: only keys of this tenant"
    )
    parser.add_argument("--project", metavar="P", help="create: restrict the key to this project")
    parser.add_argument("--environment", metavar="E", help="create: restrict the key to this environment")
    parser.add_argument(
        "--expires", metavar="SPAN", help="create: period of validity, such as 90d, 12h, 1y (default: unlimited)"
    )
    parser.epilog = (
        "A server requires keys as soon as the first one has been created (auth.mode).\n\n"
        "examples: arclog key create --name ci --role operator --expires 90d\n"
        "          arclog key list\n"
        "          arclog key revoke 4k2m7q9x1c5v8b3n"
    )


def key_command(options: Namespace) -> int:
    if options.action == "create":
        return _with_access(options, _create)
    for name in ("name", "role", "project", "environment", "expires"):
        if getattr(options, name) is not None:
            raise Usage(f"key {options.action}: --{name} is an option of `key create`", "see `arclog key --help`")
    if options.action == "revoke":
        if not options.key_id:
            raise Usage("key revoke: an ID is required", "arclog key revoke ID; `arclog key list` shows them")
        return _with_access(options, _revoke)
    if options.key_id:
        raise Usage("key list takes no id", "arclog key list")
    return _with_access(options, _list)


def audit_arguments(parser: Parser) -> None:
    parser.add_argument("--denied", action="store_true", help="only denied requests")
    parser.add_argument("--tenant", metavar="T", help="only requests of this tenant's callers")
    parser.add_argument("--limit", metavar="N", type=int, default=50, help="maximum number, newest first (default: 50)")


def audit_command(options: Namespace) -> int:
    if not 1 <= options.limit <= 100_000:
        raise Usage("audit: --limit is between 1 and 100000")
    return _with_access(options, _audit)


# -- keys -------------------------------------------------------------------------------------------------------------


async def _create(access: Access, options: Namespace, settings: Settings, out: Out) -> int:
    from arclog.cli.home import place_of, server_of
    from arclog.ports.storage.access import NewKey

    if options.key_id:
        raise Usage("key create does not take an id", "arclog key create --name NAME --role ROLE")
    if not options.name or not options.role:
        raise Usage("key create: --name and --role are required", "arclog key create --name ci --role operator")
    span = None if options.expires is None else _span(options.expires)
    new = NewKey(options.name, tuple(options.role), options.project or "", options.environment or "", span)
    made = await access.keys.create(new)
    if out.as_json:
        out.data(made)
        return OK
    out.print(made.key)
    if not options.quiet:
        out.notice(f"created {_line(made.about)}; the key is not shown again, store it now")
        if made.first:
            which = place_of(settings) if server_of(settings) else "on this home"
            out.notice(f"from now on the server {which} requires a key from every caller (auth.mode)")
    return OK


async def _list(access: Access, options: Namespace, settings: Settings, out: Out) -> int:  # noqa: ARG001 - as the others
    from arclog.cli.home import place_of
    from arclog.cli.render import clean

    keys = await access.keys.list()
    if out.as_json:
        out.data(keys)
        return OK
    for key in keys:
        out.print(clean(_line(key)))
    if not keys and not out.quiet:
        out.print(f"no keys {place_of(settings)}; `arclog key create --name NAME --role ROLE` creates one")
    return OK


async def _revoke(access: Access, options: Namespace, settings: Settings, out: Out) -> int:
    from arclog.cli.home import server_of
    from arclog.model.errors import NotFound

    # The complete key may be given instead of its id; the secret is neither checked nor sent nor printed.
    key_id = options.key_id.removeprefix("ark_").partition("_")[0]
    before = next((key for key in await access.keys.list() if key.key_id == key_id), None)
    if before is None:
        raise NotFound(f"there is no key {key_id[:64]}; `arclog key list` shows all keys")
    revoked = await access.keys.revoke(key_id)
    if out.as_json:
        out.data(revoked)
    elif not out.quiet:
        if before.revoked_at is not None:
            out.print(f"{before.name} ({key_id}) is already revoked")
        else:
            within = "its auth.cache_s" if server_of(settings) else f"{settings.number('auth.cache_s'):g} s"
            out.print(f"revoked {before.name} ({key_id}); running servers apply this within {within}")
    return OK


def _line(key: KeyInfo) -> str:
    state = f"revoked {key.revoked_at}" if key.revoked_at else f"expires {key.expires_at}" if key.expires_at else ""
    scope = "/".join(part for part in (key.tenant, key.project, key.environment) if part)
    return "  ".join(part for part in (key.key_id, key.name, ",".join(key.roles), scope, state) if part)


def _span(text: str) -> int:
    match = _SPAN.fullmatch(text)
    if match is None:
        raise Usage(f"key create: --expires {text!r} is not a duration", "write a number and s, m, h, d, w or y: 90d")
    return int(match[1]) * _SECONDS[match[2]]


# -- the audit --------------------------------------------------------------------------------------------------------


async def _audit(access: Access, options: Namespace, settings: Settings, out: Out) -> int:
    from arclog.cli.home import place_of, server_of
    from arclog.cli.render import clean

    entries = await access.audit.page(decision="denied" if options.denied else "", limit=options.limit)
    if out.as_json:
        out.data(entries)
        return OK
    for entry in reversed(entries):
        caller = f"{entry.principal} ({entry.tenant})" if entry.principal else "nobody"
        words = [entry.at, f"{entry.decision:<7}", caller, entry.method, entry.route, entry.target, entry.address]
        out.print(clean("  ".join(word for word in words if word) + (f": {entry.reason}" if entry.reason else "")))
    if not entries and not out.quiet:
        which = place_of(settings) if server_of(settings) else f"on {settings.text('home')}"
        out.print(f"no requests recorded for the server {which}")
    return OK


def _with_access(options: Namespace, work: Callable[[Access, Namespace, Settings, Out], Awaitable[int]]) -> int:
    """Call `work` with the keys and the audit; only the creation of a key creates a home."""
    import asyncio

    from arclog.cli.home import server_of, settings_of
    from arclog.cli.render import out_of
    from arclog.wiring.access import access_of

    settings, out = settings_of(options), out_of(options)
    if server_of(settings) and options.tenant is not None:
        hint = "omit --tenant, or use --home"
        raise Usage("--tenant works with --home only: on a server, it is always the caller's own tenant", hint)

    async def go() -> int:
        may_create = getattr(options, "action", "") == "create"
        async with access_of(settings, tenant=options.tenant or "", may_create=may_create) as access:
            return await work(access, options, settings, out)

    return asyncio.run(go())
