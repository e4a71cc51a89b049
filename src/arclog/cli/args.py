"""The command line: which commands there are, and how their words become options.

Only the parser of the command asked for is built. Global options may stand before or behind the command.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import Any, NoReturn

from arclog.cli.exits import INVALID, OK, Usage

#: command → (module that has `<command>_arguments(parser)` and `<command>_command(options)`, what it does)
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("runs.run", "run a playbook and show its steps live"),
    "check": ("playbooks.check", "say all that is wrong with a playbook"),
    "init": ("playbooks.init", "write a playbook to begin with, and its tests"),
    "test": ("playbooks.tests", "run the tests of playbooks, offline and in virtual time"),
    "migrate": ("playbooks.migrate", "rewrite older forms of a playbook in the present language"),
    "fmt": ("playbooks.editing", "format the white space of playbook files"),
    "dev": ("playbooks.editing", "check, test and run a playbook each time it is saved"),
    "plan": ("playbooks.check", "show the compiled net of a playbook"),
    "schema": ("playbooks.schema", "print the JSON Schema of playbooks, events or records"),
    "list": ("runs.listing", "list the runs, newest first"),
    "show": ("runs.show", "show one run: steps, ctx, result, error"),
    "status": ("runs.show", "say the state of a run in seven fields"),
    "events": ("runs.streams", "print the event log of a run"),
    "logs": ("runs.logs", "print or search what a run's tasks printed"),
    "result": ("runs.results", "list, show, print or save what a run stored outside its log"),
    "state": ("history.state", "show a run as it was after any of its events"),
    "why": ("runs.show", "say what a run waits for, or why it ended as it did"),
    "pause": ("runs.signals", "let a run stop between two tasks"),
    "resume": ("runs.run", "go on with a run that is paused, or whose process died"),
    "cancel": ("runs.signals", "end a run"),
    "retry": ("runs.signals", "retry a step, or run an ended run again, whole or what failed"),
    "fork": ("history.fork", "start a new run from the state after any event of a run"),
    "replay": ("history.fork", "check recorded runs against this arclog: decide again and compare"),
    "diff": ("history.fork", "compare two runs: where they part, and why"),
    "simulate": ("history.simulate", "run a changed playbook against the recorded outcomes of runs"),
    "export": ("history.portable", "write a run to a file: log, playbook and results"),
    "import": ("history.portable", "take in a run from a file, read-only"),
    "lineage": ("history.lineage", "list what data a run read and wrote, as OpenLineage events too"),
    "trace": ("history.trace", "say where a value of a run came from"),
    "stats": ("history.stats", "say how the latest runs of a playbook went"),
    "skip": ("runs.signals", "end a step as skipped and go on"),
    "approve": ("runs.signals", "let a run or a task that waits for an approval go on"),
    "reject": ("runs.signals", "refuse what waits for an approval"),
    "signal": ("runs.signals", "give a run a signal"),
    "catalog": ("playbooks.catalog", "register, list, show, compare and archive playbooks"),
    "up": ("operations.serving", "serve the API with a worker, on this machine"),
    "server": ("operations.serving", "serve the API to workers elsewhere"),
    "gc": ("runs.results", "remove stored results that are no longer needed"),
    "schedule": ("operations.schedule", "add, list, pause, remove and backfill schedules"),
    "secret": ("operations.secret", "keep, list and remove secrets for keychain entries"),
    "key": ("operations.keys", "make, list and revoke API keys of a server"),
    "audit": ("operations.keys", "show what callers of a server were granted and denied"),
    "worker": ("operations.worker", "run the commands of a server, or let a worker leave"),
    "workers": ("operations.pools", "list the workers that were seen"),
    "pool": ("operations.pools", "list and limit pools of workers"),
    "resource": ("operations.pools", "list and limit resources that steps use"),
    "doctor": ("operations.doctor", "say what is wrong with a server, or with the arclog of these settings"),
    "backup": ("operations.backup", "copy the store of a home to a file while it is in use"),
    "restore": ("operations.backup", "make a home from a backup"),
    "lsp": ("playbooks.editing", "serve editors: findings, completion, hover and definitions over standard input"),
    "completion": ("playbooks.editing", "print what completes words in bash, zsh or fish"),
    "version": ("runs.show", "print the version"),
}

#: Commands that never speak to a server: they look at files of this machine, or are the server.
LOCAL = frozenset(
    {"check", "init", "migrate", "fmt", "dev", "lsp", "plan", "schema", "version", "server", "up", "backup", "restore"}
)

_GLOBALS = """\
  --json          output for scripts; errors are JSON on stderr
  --home DIR      where the runs are kept (else $ARCLOG_HOME, else .arclog)
  --server URL    speak to a server instead (else $ARCLOG_SERVER); --token-file FILE has its token (else $ARCLOG_TOKEN)
  --quiet, -q     only what was asked for, and errors
"""

_EXAMPLES = """\
examples:
  arclog run examples/hello.yaml
  arclog run flow.yaml --set user.name=Ada --set 'ids=[1, 2]' --json
  arclog check flow.yaml
  arclog events last --follow

exit codes: 0 completed, 1 failed, 2 invalid playbook or usage, 3 cancelled
"""


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are our own error, and that knows what was probably meant."""

    def error(self, message: str) -> NoReturn:
        raise Usage(f"{self.prog.removeprefix('arclog ')}: {message}", f"see `{self.prog} --help`")

    def parse(self, words: list[str]) -> argparse.Namespace:
        options, unknown = self.parse_known_args(words)
        if unknown:
            first = unknown[0].split("=")[0]
            if first.startswith("-"):
                known = [word for action in self._actions for word in action.option_strings]
                self.error(f"there is no option {first}{_perhaps(first, known)}")
            self.error(f"{unknown[0]!r} is one word too many")
        return options


def dispatch(words: list[str]) -> int:
    """Parse the words and run their command."""
    first, command, rest = _split(words)
    if command in ("", "help"):
        known = rest[0] if command == "help" and rest else ""
        if known in COMMANDS:
            parser_of(known).print_help()
            return OK
        asked = command == "help" or any(word in ("-h", "--help") for word in first)
        print(overview(), end="", file=sys.stdout if asked else sys.stderr)
        return OK if asked else INVALID
    if command not in COMMANDS:
        hint = "`arclog --help` lists the commands"
        if command.endswith((".yaml", ".yml", ".json")):
            hint = f"to run a playbook: arclog run {command}"
        raise Usage(f"there is no command {command!r}{_perhaps(command, list(COMMANDS))}", hint)
    options = parser_of(command).parse([*first, *rest])
    if command in LOCAL and (options.server or options.token_file):
        raise Usage(f"{command} works on this machine alone; it takes no --server")
    module = import_module(f"arclog.cli.{COMMANDS[command][0]}")
    code: int = getattr(module, f"{command}_command")(options)
    return code


def overview() -> str:
    """The text of `arclog --help`."""
    lines = ["usage: arclog COMMAND [options]", "", "Runs YAML playbooks and keeps every decision in an event log.", ""]
    lines += [f"  {name:<11}{summary}" for name, (_, summary) in COMMANDS.items()]
    lines += [
        "",
        "options of every command:",
        _GLOBALS,
        "`arclog COMMAND --help` tells more. An ID is a full execution id",
    ]
    return "\n".join(lines) + ", or `last` for the newest run.\n\n" + _EXAMPLES


def parser_of(command: str) -> Parser:
    module, summary = COMMANDS[command]
    parser = Parser(
        prog=f"arclog {command}",
        description=f"{summary[0].upper()}{summary[1:]}.",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments: Any = getattr(import_module(f"arclog.cli.{module}"), f"{command}_arguments")
    add_arguments(parser)
    shared = parser.add_argument_group("options of every command")
    shared.add_argument("--json", action="store_true", help="output for scripts; errors are JSON on stderr")
    shared.add_argument("--home", metavar="DIR", help="where the runs are kept (else $ARCLOG_HOME, else .arclog)")
    shared.add_argument(
        "--server",
        metavar="URL",
        help=argparse.SUPPRESS if command in LOCAL else "speak to this server instead (else $ARCLOG_SERVER)",
    )
    shared.add_argument(
        "--token-file",
        metavar="FILE",
        help=argparse.SUPPRESS
        if command in LOCAL
        else "file with the token that the server wants (else $ARCLOG_TOKEN)",
    )
    shared.add_argument("--quiet", "-q", action="store_true", help="only what was asked for, and errors")
    return parser


#: options of every command that take a value
_WITH_VALUE = ("--home", "--server", "--token-file")
_WITH_VALUE_JOINED = tuple(f"{word}=" for word in _WITH_VALUE)


def _split(words: list[str]) -> tuple[list[str], str, list[str]]:
    """The options before the command, the command, and the rest."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        word = words[index]
        if word in ("-h", "--help", "--json", "--quiet", "-q") or word.startswith(_WITH_VALUE_JOINED):
            index += 1
        elif word in _WITH_VALUE:
            index += 2
        elif word in ("--version", "-V"):
            return words[:index], "version", words[index + 1 :]
        else:
            hint = "options of a command stand behind it; see `arclog --help`"
            raise Usage(f"there is no option {word} before the command", hint)
    command = words[index] if index < len(words) else ""
    return words[:index], command, words[index + 1 :]


def _perhaps(word: str, known: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""
