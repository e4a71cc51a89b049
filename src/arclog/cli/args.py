"""The table of commands, and the parsing of a command line.

Only the parser of the given command is built. Global options may come before or after the command.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import Any, NoReturn

from arclog.cli.exits import INVALID, OK, Usage

#: command → (module that has `<command>_arguments(parser)` and `<command>_command(options)`, description)
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("runs.run", "run a playbook and show its steps live"),
    "check": ("playbooks.check", "check a playbook for errors"),
    "init": ("playbooks.editing", "create a playbook and its tests from a template"),
    "test": ("playbooks.tests", "run the tests of playbooks offline, in virtual time"),
    "migrate": ("playbooks.migrate", "convert a playbook of an older release"),
    "fmt": ("playbooks.editing", "format playbook files"),
    "dev": ("playbooks.editing", "check, test and run a playbook whenever it is saved"),
    "plan": ("playbooks.check", "show the compiled net of a playbook"),
    "schema": ("playbooks.check", "print the JSON Schema of playbooks, events or records"),
    "list": ("runs.listing", "list the runs, newest first"),
    "show": ("runs.show", "show a run: steps, ctx, result, error"),
    "status": ("runs.show", "print the state of a run in seven fields"),
    "events": ("runs.streams", "print the event log of a run"),
    "logs": ("runs.logs", "print or search the output of a run's tasks"),
    "result": ("runs.results", "list, show, print or save the stored results of a run"),
    "state": ("history.state", "show a run as it was after any of its events"),
    "why": ("runs.show", "explain what a run is waiting for, or why it failed"),
    "pause": ("runs.signals", "pause a run: no new tasks start, running tasks finish"),
    "resume": ("runs.run", "continue a run that is paused or whose process died"),
    "cancel": ("runs.signals", "cancel a run"),
    "retry": ("runs.signals", "retry a step, or run a finished run again, completely or in part"),
    "fork": ("history.fork", "start a new run from the state after any event of a run"),
    "replay": ("history.replay", "verify that this version would decide recorded runs the same way"),
    "diff": ("history.diff", "compare two runs or two playbooks"),
    "simulate": ("history.simulate", "run a changed playbook against the recorded outcomes of runs"),
    "export": ("history.portable", "write a run to a file: log, playbook and results"),
    "import": ("history.portable", "import a run from a file, read-only"),
    "lineage": ("history.lineage", "list the data that a run read and wrote, also as OpenLineage events"),
    "trace": ("history.lineage", "show where a value of a run came from"),
    "stats": ("history.stats", "show success rates and durations of a playbook's runs"),
    "skip": ("runs.signals", "skip a step and continue the run"),
    "approve": ("runs.signals", "approve a run or task that is waiting for approval"),
    "reject": ("runs.signals", "reject a run or task that is waiting for approval"),
    "signal": ("runs.signals", "send a signal to a run"),
    "catalog": ("playbooks.catalog", "register, list, show, compare and archive playbooks"),
    "up": ("operations.serving", "start a server with a worker on this machine"),
    "server": ("operations.serving", "start a server without a worker"),
    "gc": ("runs.results", "remove stored results that are no longer needed"),
    "schedule": ("operations.schedule", "add, list, pause, remove and backfill schedules"),
    "secret": ("operations.secret", "store, list and remove secrets for keychain entries"),
    "key": ("operations.keys", "create, list and revoke API keys of a server"),
    "audit": ("operations.keys", "show which requests a server granted and denied"),
    "worker": ("operations.worker", "start a worker for a server, or drain one"),
    "workers": ("operations.pools", "list workers"),
    "pool": ("operations.pools", "list worker pools and set their limits"),
    "resource": ("operations.pools", "list resources and set their limits"),
    "doctor": ("operations.doctor", "check a server or an installation for problems"),
    "backup": ("operations.backup", "back up a home while it is in use"),
    "restore": ("operations.backup", "restore a home from a backup"),
    "lsp": ("playbooks.editing", "start the language server for editors"),
    "completion": ("playbooks.editing", "print the completion script for bash, zsh or fish"),
    "version": ("runs.show", "print the version"),
}

#: Commands that never use a server: they work on files of this machine, or are the server.
LOCAL = frozenset(
    {"check", "init", "migrate", "fmt", "dev", "lsp", "plan", "schema", "version", "server", "up", "backup", "restore"}
)

_GLOBALS = """\
  --json          output for scripts; errors are JSON on stderr
  --home DIR      folder with the runs (default: $ARCLOG_HOME, else .arclog)
  --server URL    use a server instead (default: $ARCLOG_SERVER); --token-file FILE contains its token
                  (default: $ARCLOG_TOKEN)
  --quiet, -q     print only results and errors
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
    """An argparse parser that raises `Usage` and suggests corrections."""

    def error(self, message: str) -> NoReturn:
        raise Usage(f"{self.prog.removeprefix('arclog ')}: {message}", f"see `{self.prog} --help`")

    def add_set(self, purpose: str) -> None:
        """Add --set. Its values are in `options.assignments`."""
        self.add_argument(
            "--set",
            dest="assignments",
            metavar="PATH=VALUE",
            action="append",
            default=[],
            help=f"{purpose}; VALUE is JSON, otherwise text (repeatable)",
        )

    def add_map(self, purpose: str) -> None:
        """Add --map. `cli.options.mapping_of` reads its values."""
        self.add_argument(
            "--map", dest="mapped", metavar="OLD=NEW", action="append", default=[], help=f"{purpose} (repeatable)"
        )

    def parse(self, words: list[str]) -> argparse.Namespace:
        options, unknown = self.parse_known_args(words)
        if unknown:
            first = unknown[0].split("=")[0]
            if first.startswith("-"):
                from arclog.model.data.suggestions import did_you_mean

                names = [word for action in self._actions for word in action.option_strings]
                self.error(f"unknown option {first}{did_you_mean(first, names)}")
            self.error(f"{unknown[0]!r} is not expected here")
        return options


def dispatch(words: list[str]) -> int:
    """Parse the words and run their command."""
    first, command, arguments = _split(words)
    if command in ("", "help"):
        topic = arguments[0] if command == "help" and arguments else ""
        if topic in COMMANDS:
            parser_of(topic).print_help()
            return OK
        wants_help = command == "help" or any(word in ("-h", "--help") for word in first)
        print(overview(), end="", file=sys.stdout if wants_help else sys.stderr)
        return OK if wants_help else INVALID
    if command not in COMMANDS:
        from arclog.model.data.suggestions import did_you_mean

        hint = "`arclog --help` lists the commands"
        if command.endswith((".yaml", ".yml", ".json")):
            hint = f"to run a playbook: arclog run {command}"
        raise Usage(f"unknown command {command!r}{did_you_mean(command, COMMANDS)}", hint)
    options = parser_of(command).parse([*first, *arguments])
    if command in LOCAL and (options.server or options.token_file):
        raise Usage(f"{command} works on this machine only and does not take --server")
    module = import_module(f"arclog.cli.{COMMANDS[command][0]}")
    code: int = getattr(module, f"{command}_command")(options)
    return code


def overview() -> str:
    """The text of `arclog --help`."""
    lines = ["usage: arclog COMMAND [options]", "", "Runs YAML playbooks and keeps every decision in an event log.", ""]
    lines += [f"  {name:<11}{summary}" for name, (_, summary) in COMMANDS.items()]
    lines += [
        "",
        "global options:",
        _GLOBALS,
        "Run `arclog COMMAND --help` for details. An ID is an execution id",
    ]
    return "\n".join(lines) + ", or `last` for the newest run.\n\n" + _EXAMPLES


def parser_of(command: str) -> Parser:
    module, summary = COMMANDS[command]
    parser = Parser(
        prog=f"arclog {command}",
        description=f"{summary[0].upper()}{summary[1:]}.",
        allow_abbrev=False,
        formatter_class=_formatter_of_width_80,
    )
    add_arguments: Any = getattr(import_module(f"arclog.cli.{module}"), f"{command}_arguments")
    add_arguments(parser)
    shared = parser.add_argument_group("global options")
    shared.add_argument("--json", action="store_true", help="output for scripts; errors are JSON on stderr")
    shared.add_argument("--home", metavar="DIR", help="folder with the runs (default: $ARCLOG_HOME, else .arclog)")
    shared.add_argument(
        "--server",
        metavar="URL",
        help=argparse.SUPPRESS if command in LOCAL else "use this server instead (default: $ARCLOG_SERVER)",
    )
    shared.add_argument(
        "--token-file",
        metavar="FILE",
        help=argparse.SUPPRESS if command in LOCAL else "file with the server's access token (default: $ARCLOG_TOKEN)",
    )
    shared.add_argument("--quiet", "-q", action="store_true", help="print only results and errors")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    return parser


def _formatter_of_width_80(prog: str) -> argparse.HelpFormatter:
    """Return a formatter that does not read the terminal's width, for which argparse imports shutil: it checks each
    argument with a separate formatter.
    """
    return argparse.HelpFormatter(prog, width=80)


#: global options that take a value
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
            hint = "options of a command follow its name; see `arclog --help`"
            raise Usage(f"unknown option {word} before the command", hint)
    command = words[index] if index < len(words) else ""
    return words[:index], command, words[index + 1 :]
