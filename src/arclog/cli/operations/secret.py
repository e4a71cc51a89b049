"""The command `secret`: secrets for keychain entries, in the home, in the store that servers share, or at a server.

A value is read from a prompt, pipe, file or variable, never from an argument (which process lists and the shell's
history show), and is never printed.
"""

from __future__ import annotations

import sys
from argparse import SUPPRESS, Namespace
from typing import TYPE_CHECKING

from arclog.cli.exits import OK, Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.model.config.settings import Settings
    from arclog.ports.secrets import CredentialApi, SecretInfo


def secret_arguments(parser: Parser) -> None:
    parser.add_argument("action", choices=("set", "list", "rm"), help="store a secret, list names, remove a secret")
    parser.add_argument("name", metavar="NAME", nargs="?", help="name used in keychain entries (set, rm)")
    parser.add_argument("surplus", nargs="*", help=SUPPRESS)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--from-env", metavar="VAR", help="set: read the value from this environment variable")
    source.add_argument(
        "--from-file", metavar="FILE", help="set: read the value from this file, without its last newline"
    )
    parser.add_argument(
        "--scope",
        metavar="SCOPE",
        help="scope of the secret: TENANT, TENANT/PROJECT or TENANT/PROJECT/ENVIRONMENT (default: from the "
        "settings; on a server, the caller's whole tenant)",
    )
    parser.epilog = (
        "Without --from-env or --from-file, the value is read from the terminal without echo, or from standard input.\n"
        "A JSON object provides its fields as {{ keychain.name.field }}; any other text is {{ keychain.name.value }}.\n\n"
        "examples: arclog secret set openai_token\n"
        "          arclog secret set pg_k8s --from-file pg.json"
    )


def secret_command(options: Namespace) -> int:
    import asyncio

    from arclog.cli.home import settings_of
    from arclog.cli.render import out_of
    from arclog.wiring.access import credentials_of

    settings, out = settings_of(options), out_of(options)
    if options.surplus:  # not repeated in the message: it may be the secret
        hint = "type it when asked, pipe it in, or use --from-env or --from-file"
        raise Usage("secret: a value must not be an argument, where other users could see it", hint)
    if options.action != "set" and (options.from_env is not None or options.from_file is not None):
        raise Usage("secret: --from-env and --from-file are options of `secret set`", "see `arclog secret --help`")
    if options.action == "list":
        if options.name:
            raise Usage("secret list takes no name", "arclog secret list")
    elif not options.name:
        raise Usage(f"secret {options.action}: a NAME is required", f"arclog secret {options.action} NAME")
    # Read before anything is opened, since typing may take a while.
    value = _value(options, settings.integer("secrets.max_bytes")) if options.action == "set" else ""

    async def go() -> int:
        async with credentials_of(settings) as credentials:
            if options.action == "set":
                return await _set(credentials, options, value, settings, out)
            if options.action == "list":
                return await _list(credentials, options, out)
            return await _remove(credentials, options, out)

    return asyncio.run(go())


async def _set(credentials: CredentialApi, options: Namespace, value: str, settings: Settings, out: Out) -> int:
    from pathlib import Path

    from arclog.cli.home import place_of, server_of
    from arclog.model.data.redact import SHORTEST

    info = await credentials.put(options.name, value, options.scope or "")
    if len(value) < SHORTEST:
        message = f"{info.name} has fewer than {SHORTEST} characters: it is redacted only where it is a complete value"
        out.notice(f"warning: {message}")
    if out.as_json:
        out.data(info)
    elif not out.quiet:
        from arclog.secrets.store import STORE_FILE

        elsewhere = server_of(settings) or settings.text("store.url")
        where = place_of(settings) if elsewhere else f"in {Path(settings.text('home')) / STORE_FILE}"
        out.print(f"stored {_described(info)} {where}")
    return OK


async def _remove(credentials: CredentialApi, options: Namespace, out: Out) -> int:
    scope = await credentials.remove(options.name, options.scope or "")
    if out.as_json:
        out.data({"name": options.name, "scope": scope, "removed": True})
    elif not out.quiet:
        out.print(f"removed {options.name} ({scope})")
    return OK


async def _list(credentials: CredentialApi, options: Namespace, out: Out) -> int:
    from arclog.cli.render import clean

    infos = [info for info in await credentials.list() if options.scope in (None, info.scope)]
    if out.as_json:
        out.data(infos)
        return OK
    for info in infos:
        out.print(clean(f"{_described(info)}  set {info.set_at}"))
    if not infos and not out.quiet:
        out.print("no secrets; `arclog secret set NAME` adds one")
    return OK


def _described(info: SecretInfo) -> str:
    fields = f"  fields {', '.join(info.fields)}" if info.fields else ""
    return f"{info.name}  {info.scope}{fields}"


def _value(options: Namespace, most: int) -> str:
    """The value of the secret, from the source that the options name."""
    import os
    from pathlib import Path

    if options.from_env is not None:
        text = os.environ.get(options.from_env)
        if text is None:
            raise Usage(f"secret set: the environment variable {options.from_env} is not set")
        return _checked(text, f"the environment variable {options.from_env}")
    if options.from_file is not None:
        from arclog.secrets.files import read_small

        try:
            body = read_small(Path(options.from_file), most)
        except OSError as problem:
            raise Usage(f"secret set: {options.from_file}: {problem.strerror or problem}") from None
        return _decoded(body, options.from_file)
    if sys.stdin is not None and sys.stdin.isatty():
        from getpass import getpass

        try:
            return _checked(getpass(f"value of {options.name}: "), "what was typed")
        except EOFError:
            raise Usage("secret set: nothing was typed") from None
    if sys.stdin is None:
        raise Usage("secret set: standard input is closed", "use --from-env or --from-file")
    return _decoded(sys.stdin.buffer.read(most + 2), "standard input")


def _decoded(body: bytes, source: str) -> str:
    try:
        return _checked(body.decode().removesuffix("\n").removesuffix("\r"), source)
    except UnicodeDecodeError:
        raise Usage(f"secret set: {source} is not UTF-8") from None


def _checked(text: str, source: str) -> str:
    if not text:
        raise Usage(f"secret set: {source} is empty")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Usage(f"secret set: {source} is not UTF-8") from None
    return text
