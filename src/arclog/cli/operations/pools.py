"""The commands `pool`, `resource` and `workers`: limits of concurrent work, and the workers."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from arclog.cli.exits import OK, Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.ports.storage.pools import PoolApi, PoolView, ResourceView, WorkerView

T = TypeVar("T")

_ACTIONS = ("list", "set", "rm")
_NO_POOLS = "no pools: there is no waiting work, no worker and no limit"
_NO_RESOURCES = "no resource has a limit"
_NO_WORKERS = "no workers; `arclog worker --server URL` starts one"


# -- pool ---------------------------------------------------------------------------------------------------------------


def pool_arguments(parser: Parser) -> None:
    parser.add_argument("action", choices=_ACTIONS, help="action")
    parser.add_argument("name", metavar="NAME", nargs="?", help="the pool (set, rm), unless --all is given")
    parser.add_argument("--all", action="store_true", help="set, rm: all pools together")
    parser.add_argument(
        "--concurrency", metavar="N", type=int, help="set: maximum number of commands at a time; 0 stops the pool"
    )
    parser.add_argument("--tenant", metavar="NAME", help="set, rm: the limit of one tenant")
    parser.add_argument("--each-tenant", action="store_true", help="set, rm: the limit of each tenant separately")
    parser.epilog = (
        "`arclog worker --pool gpu` serves the steps with `spec: {pool: gpu}`.\n\n"
        "examples: arclog pool set gpu --concurrency 32\n"
        "          arclog pool set gpu --each-tenant --concurrency 8\n"
        "          arclog pool set --all --tenant acme --concurrency 100"
    )


def pool_command(options: Namespace) -> int:
    action = options.action
    flags = [
        word
        for word, value in (
            ("--all", options.all),
            ("--concurrency", options.concurrency is not None),
            ("--tenant", options.tenant is not None),
            ("--each-tenant", options.each_tenant),
        )
        if value
    ]
    if action == "list":
        if options.name or flags:
            raise Usage("pool list takes no arguments", "arclog pool list")
    else:
        if bool(options.name) == options.all:
            raise Usage(f"pool {action}: either NAME or --all is required", f"arclog pool {action} NAME")
        if options.tenant is not None and options.each_tenant:
            raise Usage(f"pool {action}: use either --tenant or --each-tenant, not both")
        if options.tenant in ("", "*"):
            raise Usage(f"pool {action}: --tenant {options.tenant!r} is not a tenant", "--each-tenant is each of them")
        if (options.concurrency is None) == (action == "set"):
            hint = "arclog pool set NAME --concurrency N" if action == "set" else "arclog pool rm NAME"
            raise Usage(
                f"pool {action}: --concurrency is {'required' if action == 'set' else 'an option of `pool set`'}", hint
            )

    async def do(pools: PoolApi, out: Out) -> None:
        name = "" if options.all else options.name or ""
        tenant = "*" if options.each_tenant else options.tenant or ""
        match action:
            case "set":
                _print_rows([await pools.set_limit(name, tenant, options.concurrency)], _pool_line, out, single=True)
            case "rm":
                _print_rows([await pools.remove_limit(name, tenant)], _pool_line, out, single=True)
            case _:
                _print_rows(await pools.pools(), _pool_line, out, _NO_POOLS)

    return _with(options, do, _NO_POOLS if action == "list" else "")


def _pool_line(pool: PoolView) -> str:
    name = pool.name or "(all pools)"
    waiting = f"{pool.waiting} waiting" + (f", the oldest for {pool.oldest_s:.0f} s" if pool.waiting else "")
    limits = [
        f"{'all tenants' if not limit.tenant else 'each tenant' if limit.tenant == '*' else f'tenant {limit.tenant}'}"
        f" at most {limit.concurrency}"
        for limit in pool.limits
    ]
    line = f"{name}  {waiting}, {pool.busy} busy; {pool.workers} workers, {pool.slots} slots"
    return line + (f"; {', '.join(limits)}" if limits else "")


# -- resource -----------------------------------------------------------------------------------------------------------


def resource_arguments(parser: Parser) -> None:
    parser.add_argument("action", choices=_ACTIONS, help="action")
    parser.add_argument("name", metavar="NAME", nargs="?", help="the resource (set, rm)")
    parser.add_argument("--rate", metavar="N/UNIT", help="set: rate at which commands may start, e.g. 10/s, 100/m, 5/h")
    parser.add_argument(
        "--burst", metavar="N", type=int, help="set: number of commands that may start at once (default: 1)"
    )
    parser.add_argument(
        "--concurrency", metavar="N", type=int, help="set: maximum number of commands that use it at a time"
    )
    parser.epilog = (
        "Steps with `spec: {resources: [NAME]}` wait for the resource. A resource that is not listed has no limit.\n\n"
        "example: arclog resource set billing-api --rate 10/s --burst 20 --concurrency 4"
    )


def resource_command(options: Namespace) -> int:
    action = options.action
    terms = (options.rate, options.burst, options.concurrency)
    if action == "list":
        if options.name or any(term is not None for term in terms):
            raise Usage("resource list takes no arguments", "arclog resource list")
    elif not options.name:
        raise Usage(f"resource {action}: a NAME is required", f"arclog resource {action} NAME")
    if action == "rm" and any(term is not None for term in terms):
        raise Usage("resource rm takes only a NAME", "arclog resource set NAME changes its limits")
    if action == "set" and options.rate is None and options.concurrency is None:
        raise Usage("resource set: --rate or --concurrency is required", "arclog resource set NAME --rate 10/s")

    async def do(pools: PoolApi, out: Out) -> None:
        from arclog.ports.storage.pools import NewResource

        match action:
            case "set":
                burst = 1 if options.burst is None else options.burst
                new = NewResource(options.rate or "", burst, options.concurrency)
                _print_rows([await pools.set_resource(options.name, new)], _resource_line, out, single=True)
            case "rm":
                await pools.remove_resource(options.name)
                if out.as_json:
                    out.data({"name": options.name, "removed": True})
                elif not out.quiet:
                    out.print(f"{options.name} no longer has a limit")
            case _:
                _print_rows(await pools.resources(), _resource_line, out, _NO_RESOURCES)

    return _with(options, do, _NO_RESOURCES if action == "list" else "")


def _resource_line(resource: ResourceView) -> str:
    parts = []
    if resource.rate:
        coming = "" if resource.tokens else f", the next in {resource.next_token_s:.1f} s"
        parts.append(f"{resource.rate}, burst {resource.burst}: {resource.tokens} tokens{coming}")
    most = "" if resource.concurrency is None else f" of {resource.concurrency}"
    parts.append(f"{resource.held}{most} in use")
    return f"{resource.name}  {'; '.join(parts)}"


# -- workers ------------------------------------------------------------------------------------------------------------


def workers_arguments(parser: Parser) -> None:
    parser.epilog = "`arclog worker drain ID` drains a worker: it finishes its tasks and stops. Workers inside `arclog run` are not listed."


def workers_command(options: Namespace) -> int:
    async def do(pools: PoolApi, out: Out) -> None:
        _print_rows(await pools.workers(), worker_line, out, _NO_WORKERS)

    return _with(options, do, _NO_WORKERS)


def drain(options: Namespace) -> int:
    """`arclog worker drain`."""
    worker_id, pools_named = options.id or "", options.pool or []
    if bool(worker_id) == bool(pools_named) or len(pools_named) > 1:
        raise Usage("worker drain: an ID or one --pool is required", "`arclog workers` lists the ids")

    async def do(pools: PoolApi, out: Out) -> None:
        drained = await pools.drain(worker_id, pools_named[0] if pools_named else "")
        _print_rows(drained, worker_line, out, "no worker can be drained there: workers inside a server stop with it")

    return _with(options, do)


def worker_line(worker: WorkerView) -> str:
    pools = ", ".join(worker.pools) or "every pool"
    return f"{worker.worker_id}  {worker.state}  {pools}  {worker.busy} of {worker.slots} slots  {worker.version}  seen {worker.seen_at}"


def _print_rows(rows: list[T], line: Callable[[T], str], out: Out, nothing: str = "", *, single: bool = False) -> None:
    from arclog.cli.render import clean

    if out.as_json:
        out.data(rows[0] if single else rows)
        return
    for row in rows:
        out.print(clean(line(row)))
    if not rows and not out.quiet:
        out.print(nothing)


def _with(options: Namespace, do: Callable[[PoolApi, Out], Awaitable[None]], nothing: str = "") -> int:
    """Call `do` with the pools of this home or of a server; commands that only read pass a message for an empty
    home.
    """
    import asyncio

    from arclog.cli import home
    from arclog.cli.render import out_of

    settings = home.settings_of(options)
    if nothing and not home.exists(settings):
        _print_rows([], str, out_of(options), nothing)  # a command that only reads creates no home
        return OK

    async def go() -> int:
        async with home.opened(settings, read_only=bool(nothing)) as runtime:
            await do(runtime.pools(), out_of(options))
        return OK

    return asyncio.run(go())
