"""The commands `key` and `audit`: who may call the server on this home, and what callers were granted and denied.

They work on the store itself: whoever may write there needs no key. A key is printed once, when it is made.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import OK, Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.model.settings import Settings
    from arclog.ports.store import Store
    from arclog.server.keys import KeyShown

_SPAN = re.compile(r"([1-9][0-9]{0,5})([smhdwy])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}


def key_arguments(parser: Parser) -> None:
    from arclog.model.principal import ROLES

    parser.add_argument("action", choices=("create", "list", "revoke"), help="make a key, list them, end one")
    parser.add_argument("key_id", metavar="ID", nargs="?", help="revoke: the key's public id (or the key itself)")
    parser.add_argument("--name", metavar="NAME", help="create: what its holder is called in logs and signals")
    parser.add_argument(
        "--role", metavar="ROLE", action="append", choices=ROLES, help=f"create: one of {', '.join(ROLES)}; repeatable"
    )
    parser.add_argument(
        "--tenant", metavar="T", help="its tenant (default: that of the settings); list: only this one's"
    )
    parser.add_argument("--project", metavar="P", help="create: project of its runs when a request names none")
    parser.add_argument("--environment", metavar="E", help="create: environment of its runs when a request names none")
    parser.add_argument(
        "--expires", metavar="SPAN", help="create: how long it is good for: 90d, 12h, 1y (default: for ever)"
    )
    parser.epilog = (
        "A server asks for keys as soon as one was ever made (auth.mode).\n\n"
        "examples: arclog key create --name ci --role operator --expires 90d\n"
        "          arclog key list\n"
        "          arclog key revoke 4k2m7q9x1c5v8b3n"
    )


def key_command(options: Namespace) -> int:
    if options.action == "create":
        return _with_store(options, _create)
    for name in ("name", "role", "project", "environment", "expires"):
        if getattr(options, name) is not None:
            raise Usage(f"key {options.action}: --{name} belongs to `key create`", "see `arclog key --help`")
    if options.action == "revoke":
        if not options.key_id:
            raise Usage("key revoke: an ID is needed", "arclog key revoke ID; `arclog key list` shows them")
        return _with_store(options, _revoke)
    if options.key_id:
        raise Usage("key list takes no id", "arclog key list")
    return _with_store(options, _list)


def audit_arguments(parser: Parser) -> None:
    parser.add_argument("--denied", action="store_true", help="only what was denied")
    parser.add_argument("--tenant", metavar="T", help="only requests of this tenant's callers")
    parser.add_argument("--limit", metavar="N", type=int, default=50, help="at most so many, the newest (default 50)")


def audit_command(options: Namespace) -> int:
    if not 1 <= options.limit <= 100_000:
        raise Usage("audit: --limit is between 1 and 100000")
    return _with_store(options, _audit)


# -- keys -------------------------------------------------------------------------------------------------------------


async def _create(store: Store, options: Namespace, settings: Settings, out: Out) -> int:
    from arclog.model.ids import MICROS
    from arclog.server.keys import make_key, shown
    from arclog.wiring.clock import SystemClock

    if options.key_id:
        raise Usage("key create takes no id: it makes one", "arclog key create --name NAME --role ROLE")
    if not options.name or not options.role:
        raise Usage("key create: --name and --role are needed", "arclog key create --name ci --role operator")
    now = SystemClock().now()
    text, record = make_key(
        options.name,
        options.role,
        options.tenant or settings.text("scope.tenant"),
        now,
        project=options.project or "",
        environment=options.environment or "",
        expires_at=None if options.expires is None else now + _span(options.expires) * MICROS,
    )
    first = not await store.has_keys()
    await store.add_key(record)
    if out.as_json:
        out.data({"key": text, "about": shown(record)})
        return OK
    out.say(text)
    if not options.quiet:
        out.notice(f"made {_line(shown(record))}; the key is shown this once, keep it now")
        if first:
            out.notice("from now on the server on this home asks every caller for a key (auth.mode)")
    return OK


async def _list(store: Store, options: Namespace, settings: Settings, out: Out) -> int:
    from arclog.cli.render import clean
    from arclog.server.keys import shown

    found = [shown(record) for record in await store.keys(options.tenant or "")]
    if out.as_json:
        out.data(found)
        return OK
    for each in found:
        out.say(clean(_line(each)))
    if not found and not out.quiet:
        out.say(f"no keys in {settings.text('home')}; `arclog key create --name NAME --role ROLE` makes one")
    return OK


async def _revoke(store: Store, options: Namespace, settings: Settings, out: Out) -> int:
    from arclog.model.errors import NotFound
    from arclog.server.keys import shown
    from arclog.wiring.clock import SystemClock

    # Whoever has the key itself in hand may give it whole; its secret is not looked at, and not repeated.
    key_id = options.key_id.removeprefix("ark_").partition("_")[0]
    before = await store.key(key_id)
    if before is None or options.tenant not in (None, before.tenant):
        raise NotFound(f"there is no key {key_id[:64]}; `arclog key list` shows those there are")
    revoked = await store.revoke_key(key_id, SystemClock().now())
    if out.as_json:
        out.data(shown(revoked or before))
    elif not out.quiet:
        if before.revoked_at is not None:
            out.say(f"{before.name} ({key_id}) was revoked before")
        else:
            seen = settings.number("auth.cache_s")
            out.say(f"revoked {before.name} ({key_id}); a server that runs sees it within {seen:g} s")
    return OK


def _line(key: KeyShown) -> str:
    state = f"revoked {key.revoked_at}" if key.revoked_at else f"expires {key.expires_at}" if key.expires_at else ""
    scope = "/".join(part for part in (key.tenant, key.project, key.environment) if part)
    return "  ".join(part for part in (key.key_id, key.name, ",".join(key.roles), scope, state) if part)


def _span(text: str) -> int:
    found = _SPAN.fullmatch(text)
    if found is None:
        raise Usage(f"key create: --expires {text!r} is no span", "write a number and s, m, h, d, w or y: 90d")
    return int(found[1]) * _SECONDS[found[2]]


# -- the audit --------------------------------------------------------------------------------------------------------


async def _audit(store: Store, options: Namespace, settings: Settings, out: Out) -> int:
    from arclog.cli.render import clean
    from arclog.server.audited import page

    found = await page(store, options.tenant or "", "denied" if options.denied else "", 0, options.limit)
    if out.as_json:
        out.data(found)
        return OK
    for each in reversed(found):
        who = f"{each.principal} ({each.tenant})" if each.principal else "nobody"
        words = [each.at, f"{each.decision:<7}", who, each.method, each.route, each.target, each.address]
        out.say(clean("  ".join(word for word in words if word) + (f": {each.reason}" if each.reason else "")))
    if not found and not out.quiet:
        out.say(f"nobody asked the server on {settings.text('home')} for a change yet")
    return OK


def _with_store(options: Namespace, work: Callable[[Any, Namespace, Settings, Out], Awaitable[int]]) -> int:
    """Do some work on the store of the home; only making a key makes a home."""
    import asyncio
    from pathlib import Path

    from arclog.cli.home import settings_of
    from arclog.cli.render import out_of
    from arclog.model.errors import NotFound
    from arclog.wiring.backends import DATABASE, keeps_files
    from arclog.wiring.embedded import opened_store

    settings, out = settings_of(options), out_of(options)
    # The home's own store is meant, whatever ARCLOG_SERVER says.
    missing = keeps_files(settings) and not (Path(settings.text("home")) / DATABASE).exists()
    if missing and getattr(options, "action", "") != "create":
        raise NotFound(f"there is nothing in {settings.text('home')} yet; `arclog key create` makes a key, and a home")

    async def go() -> int:
        async with opened_store(settings) as store:
            return await work(store, options, settings, out)

    return asyncio.run(go())
