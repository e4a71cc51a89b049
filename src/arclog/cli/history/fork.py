"""`arclog fork`: a new run from the state after any event of a run. (`retry --from` and `--failed`: see signals.)"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from arclog.cli.options import change_arguments, mapping_of

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.ports.views.api import ForkRequest


def fork_arguments(parser: Parser) -> None:
    from arclog.cli.history.state import seq

    parser.add_argument("id", metavar="ID", help="execution id, its first digits, or last")
    parser.add_argument("--at", metavar="SEQ", type=seq, required=True, help="start from the state after this event")
    change_arguments(parser)
    parser.epilog = (
        "The new run starts with the events up to SEQ. Work that was in progress at that event restarts after its last\n"
        "finished task. `arclog events ID` shows the events, `arclog state ID --at SEQ` the state.\n"
        "A changed playbook must fit the recorded state. Otherwise the request is refused, and the message lists what\n"
        "does not fit and the latest event from which it would.\n\n"
        "example: arclog fork last --at 12 --playbook changed.yaml --set limit=10"
    )


def fork_command(options: Namespace) -> int:
    from arclog.cli.runs.run import forked_command

    return forked_command(options, request_of(options, at=options.at))


def request_of(options: Namespace, *, at: int | None = None, step: str = "", failed: bool = False) -> ForkRequest:
    """The request for the new run, from the options."""
    from arclog.authoring.playbook_files import FilesBeside
    from arclog.cli.home import settings_of
    from arclog.cli.playbooks.files import called_playbooks, files_beside, playbook_text, workload_of
    from arclog.ports.views.api import ForkRequest

    settings = settings_of(options)
    renamed = mapping_of(options)
    text, file, files = "", "", {}
    if options.playbook:
        text, file = playbook_text(options.playbook, settings)
        beside = FilesBeside(settings)
        files = {**called_playbooks(text, file, settings, beside), **files_beside(text, file, settings), **beside.taken}
    workload = workload_of(None, options.assignments, settings)
    return ForkRequest(at, step, failed, text, file, files, workload, renamed)
