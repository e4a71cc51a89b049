"""Commands about results that are stored outside the log: result list|show|get|save, and gc."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from arclog.cli.exits import OK, Usage
from arclog.model.config.settings import Settings

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.ports.views.api import Api, Collected, StoredResult

# ── results ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_PAGE = 500
_WAYS = ("list", "show", "get", "save")


def result_arguments(parser: Parser) -> None:
    parser.add_argument("what", metavar="list|show|get|save", choices=_WAYS, help="action")
    parser.add_argument(
        "ref", metavar="ID|REF", help="with list: an execution id or last; otherwise noetl://execution/…"
    )
    parser.add_argument("file", metavar="FILE", nargs="?", help="with save: target file")
    parser.add_argument("--range", metavar="A-B", help="with get: only bytes A to B, counted from 0; A- is the rest")
    parser.add_argument("--force", action="store_true", help="with save: overwrite an existing file")
    parser.usage = (
        "arclog result list ID\n       arclog result show REF\n       arclog result get REF [--range A-B]\n"
        "       arclog result save REF FILE [--force]"
    )
    parser.epilog = "example: arclog result get noetl://execution/…/result/…/… --range 0-999"


def result_command(options: Namespace) -> int:
    if (options.file is not None) != (options.what == "save"):
        raise Usage(
            "result save needs REF and FILE" if options.what == "save" else "FILE is an argument of result save"
        )
    if options.range is not None and options.what != "get":
        raise Usage("--range is an option of result get")
    if options.force and options.what != "save":
        raise Usage("--force is an option of result save")
    commands = {"list": _list, "show": _show, "get": _get, "save": _save}
    return commands[options.what](options)


# ── list ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _list(options: Namespace) -> int:
    from arclog.cli.home import with_run
    from arclog.cli.render import out_of

    out = out_of(options)
    options.id = options.ref

    async def work(api: Api, execution_id: str) -> int:
        rows: list[StoredResult] = []
        while page := await api.results(execution_id, after=rows[-1].seq if rows else 0, limit=_PAGE):
            rows += page
        if out.as_json:
            out.data(rows)
        elif rows:
            out.print(_table(rows, out))
        elif not out.quiet:
            out.print(f"run {execution_id} has no stored results")
        return OK

    return with_run(options, work)


def _table(rows: list[StoredResult], out: Out) -> str:
    from arclog.cli.render import moment, table

    head = ("NAME", "STORED", "SIZE", "ITEMS", "SCOPE", "REF")
    cells = [
        (
            row.name,
            moment(row.stored_at),
            size_text(row.bytes),
            "" if row.rows is None else f"{row.rows:,}",
            out.paint("removed", "dim") if row.removed_at else row.scope,
            row.ref,
        )
        for row in rows
    ]
    # The ref is never cut, so that it can be copied.
    return table(head, cells, 10_000, out, right=(2, 3))


# ── show ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _show(options: Namespace) -> int:
    from arclog.cli.render import out_of

    out = out_of(options)

    async def work(api: Api) -> int:
        result = await api.result(options.ref)
        if out.as_json:
            out.data(result)
        else:
            out.print(_page(result, out))
        return OK

    return _with_home(options, work)


def _page(result: StoredResult, out: Out) -> str:
    from arclog.cli.render import clean, indented, moment, pretty

    taken = "missing" if result.stored_bytes is None else f"{size_text(result.stored_bytes)} on disk"
    for_ever = result.scope == "permanent" and result.expires_at is None
    retention = (
        f"until {moment(result.kept_until)}"
        if result.kept_until
        else "for ever"
        if for_ever
        else "while its run is active"
    )
    facts = [
        ("run", result.execution_id),
        ("made by", f"step {result.step} · run {result.run} · task {result.task}" if result.step else "the run itself"),
        ("content", f"{clean(result.content_type)} · {result.kind}"),
        ("size", f"{size_text(result.bytes)} ({result.bytes:,} bytes) · {taken}"),
        *([("items", f"{result.rows:,}")] if result.rows is not None else []),
        ("sha256", result.sha256),
        ("stored", moment(result.stored_at)),
        ("removed", f"{moment(result.removed_at)} by gc")
        if result.removed_at
        else ("kept", f"{retention} (scope {result.scope})"),
    ]
    parts = [out.paint(result.name, "bold"), *(f"  {label:<10}{value}" for label, value in facts)]
    if result.preview:
        parts += ["", out.paint("begins with", "bold"), indented(pretty(result.preview))]
    if result.removed_at is None and result.stored_bytes is not None:
        parts += ["", out.paint(f"  arclog result save {result.ref} FILE", "dim")]
    return "\n".join(parts)


# ── get, save ────────────────────────────────────────────────────────────────────────────────────────────────────


def _get(options: Namespace) -> int:
    from arclog.cli.render import out_of

    start, end = _range(options.range) if options.range is not None else (0, None)
    out = out_of(options)

    async def work(api: Api) -> int:
        if out.tty:
            await _shown(api, options.ref, start, end, out)
        else:
            async for chunk in api.content(options.ref, start, end):
                sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
        return OK

    return _with_home(options, work)


async def _shown(api: Api, ref: str, start: int, end: int | None, out: Out) -> None:
    """Print content. On a terminal control characters are made visible; a pipe or a file gets the bytes."""
    import codecs

    from arclog.cli.render import clean

    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    async for chunk in api.content(ref, start, end):
        out.write(clean(decoder.decode(chunk)))
    out.write(clean(decoder.decode(b"", final=True)))


def _range(text: str) -> tuple[int, int | None]:
    first, dash, last = text.partition("-")
    numbers = [part.isascii() and part.isdigit() and len(part) <= 18 for part in (first, last)]
    if not dash or not numbers[0] or (last and not numbers[1]):
        raise Usage(f"--range {text!r} is not A-B or A- (whole numbers of bytes, from 0)", "e.g. --range 0-999")
    if last and int(last) < int(first):
        raise Usage(f"--range {text} ends before it starts")
    return int(first), int(last) + 1 if last else None


def _save(options: Namespace) -> int:
    from arclog.cli.render import out_of

    out = out_of(options)
    target = Path(options.file)
    if target.is_dir():
        raise Usage(f"{options.file} is a folder; name a file in it")
    if target.exists() and not options.force:
        raise Usage(f"{options.file} already exists", "--force overwrites it")

    async def work(api: Api) -> int:
        size = await _saved(api, options.ref, target, force=options.force)
        if out.as_json:
            out.data({"ref": options.ref, "file": options.file, "bytes": size})
        elif not out.quiet:
            out.print(f"saved {size_text(size)} to {options.file}")
        return OK

    return _with_home(options, work)


async def _saved(api: Api, ref: str, target: Path, *, force: bool) -> int:
    """Write to a temporary file and rename it, so that the target is complete or does not exist."""
    part = target.with_name(f".{target.name[:200]}.{os.urandom(4).hex()}.part")
    size = 0
    try:
        with part.open("xb") as file:
            async for chunk in api.content(ref):
                file.write(chunk)
                size += len(chunk)
            file.flush()
            os.fsync(file.fileno())
        if force:
            part.replace(target)
        else:
            _rename(part, target)
    except FileExistsError:
        raise Usage(f"{target} already exists", "--force overwrites it") from None
    except OSError as problem:
        why = problem.strerror or problem
        raise OSError(f"cannot save to {target}: {why}; choose a file in a writable folder") from problem
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    return size


def _rename(part: Path, target: Path) -> None:
    """Rename a file, unless the name is taken by now."""
    try:
        target.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if target.exists():
            raise FileExistsError(str(target)) from None
        part.replace(target)


def _with_home(options: Namespace, work: Callable[[Api], Awaitable[int]]) -> int:
    """Call `work` with the ref in `options.ref`."""
    from arclog.cli import home
    from arclog.model.errors import NotFound
    from arclog.model.refs import parse_ref

    parse_ref(options.ref)
    settings = home.settings_of(options)
    if not home.exists(settings):
        raise NotFound(f"there is no stored result {options.ref}: {home.nothing_yet(settings)}")

    async def go() -> int:
        async with home.opened(settings, read_only=True) as runtime:
            return await work(runtime.api)

    return asyncio.run(go())


# ── gc ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def gc_arguments(parser: Parser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show what would be removed without removing it")
    parser.add_argument(
        "--compact",
        action="store_true",
        help="also rewrite the SQLite file to its minimum size; stop servers and runs on it first",
    )
    parser.epilog = (
        "How long results are kept: docs/results.md. Settings: results.keep_s, results.orphan_grace_s, "
        "python.environments_keep_s, store.retention_s."
    )


def gc_command(options: Namespace) -> int:
    from arclog.cli import home
    from arclog.cli.render import out_of

    out = out_of(options)
    settings = home.settings_of(options)
    if options.compact:
        _check_compact(settings, dry_run=options.dry_run)
    if not home.exists(settings):
        from arclog.model.errors import NotFound

        raise NotFound(home.nothing_yet(settings))

    async def go() -> Collected:
        async with home.opened(settings, read_only=options.dry_run) as runtime:
            done: Collected = await runtime.api.collect(dry_run=options.dry_run)
            return done

    from msgspec.structs import asdict, replace

    done = asyncio.run(go())
    if options.compact:
        from arclog.wiring.backends import compact

        done = replace(done, reclaimed=done.reclaimed + compact(settings))
    swept = sweep_environments(settings, time.time(), dry_run=options.dry_run)
    if out.as_json:
        out.data({**asdict(done), **asdict(swept)})
    else:
        out.print(_verdict(done, swept))
    return OK


def _check_compact(settings: Settings, *, dry_run: bool) -> None:
    from arclog.cli import home
    from arclog.cli.exits import Usage

    if dry_run:
        raise Usage("use either --compact or --dry-run, not both")
    if home.server_of(settings) or settings.text("store.url"):
        raise Usage("--compact is for the SQLite file of a home; for PostgreSQL use VACUUM FULL")


def _verdict(done: Collected, swept: Swept) -> str:
    from arclog.cli.render import counted

    parts = [_of_results(done)] if done.results or done.contents or done.leftovers else []
    if done.executions:
        parts.append(
            f"{'would remove' if done.dry_run else 'removed'} {counted(done.executions, 'run')} past retention"
        )
    if done.reclaimed:
        parts.append(f"reduced the store by {size_text(done.reclaimed)}")
    if swept.environments:
        how = "would remove" if done.dry_run else "removed"
        room = size_text(swept.environment_bytes)
        parts.append(f"{how} {counted(swept.environments, 'unused python environment')}, {room}")
    return "; ".join(parts) or "nothing to remove"


def _of_results(done: Collected) -> str:
    from arclog.cli.render import counted

    words = (
        ("would let go of", "and remove", "to free") if done.dry_run else ("let go of", "and removed", "which freed")
    )
    files = counted(done.contents, "file")
    text = f"{words[0]} {counted(done.results, 'result')} {words[1]} {files}, {words[2]} {size_text(done.bytes)}"
    if done.leftovers:
        text += f"; removed {counted(done.leftovers, 'unfinished file')}"
    return text


def size_text(size: int) -> str:
    """Bytes for people."""
    if size < 1024:
        return f"{size} B"
    amount = float(size)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if amount < 1024 or unit == "GiB":
            return f"{amount:,.1f} {unit}"
    raise AssertionError  # the last unit accepts any value


# ── environments ──────────────────────────────────────────────────────────────────────────────────────────────────────
# Python environments and `arclog gc`: those that were not used lately are removed, but never one in use.


class Swept(Struct, frozen=True):
    """Environments that were, or would be, removed, and the bytes that this frees."""

    environments: int = 0
    environment_bytes: int = 0


def sweep_environments(settings: Settings, now: float, *, dry_run: bool) -> Swept:
    """Remove environments unused since `python.environments_keep_s`; `now` in seconds since 1970."""
    from arclog.sandbox.environments import known_environments, remove_environment
    from arclog.tools.python import environments_folder

    folder = environments_folder(settings)
    limit = now - settings.number("python.environments_keep_s")
    count = size = 0
    for environment in known_environments(folder):
        if environment.used_at > limit:
            break  # the rest was used later
        room = _room(environment.folder)
        if dry_run or remove_environment(folder, environment.digest):
            count += 1
            size += room
    return Swept(count, size)


def _room(folder: Path) -> int:
    """Bytes that the removal would free: files that installers link from their cache do not count."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                status = (Path(place) / name).lstat()
            except OSError:
                continue  # it is being removed by another process
            if status.st_nlink == 1:
                size += status.st_blocks * 512
    return size
