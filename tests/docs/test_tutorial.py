"""The commands of docs/tutorial.md and of the README's quick start, run in order as they stand."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.docs.commands import ROOT, Block, blocks_of, output_pattern, run_commands, start_server


def test_the_tutorial_from_the_first_command_to_the_last(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = tmp_path / "folder"
    folder.mkdir()
    blocks = blocks_of((ROOT / "docs/tutorial.md").read_text(encoding="utf-8"))
    assert len(blocks) > 15
    servers: list[subprocess.Popen[str]] = []
    printed = ""
    try:
        for block in blocks:
            match block:
                case Block("yaml", name, text):
                    (folder / name).write_text(text, encoding="utf-8")
                case Block("sh", "background", text):
                    servers.append(start_server(text.strip(), folder, home))
                case Block("sh", option, text):
                    printed = run_commands(text, folder, home, fails=option == "fails")
                case Block(_, _, text):
                    assert output_pattern(text).fullmatch(printed), f"the page shows\n{text}\nprinted was\n{printed}"
        # The schedule's runs of two days in the past, which the page promises in the list. The server starts them by itself.
        for _ in range(60):
            events = run_commands(
                'for id in $(arclog list --json | python3 -c "import json, sys; '
                "print(*[run['execution_id'] for run in json.load(sys.stdin)[:1]])\"); do "
                "arclog events $id --follow --json; done",
                folder, home,
            )  # fmt: skip
            first = json.loads(events.splitlines()[0])
            if "schedule" in first["payload"]["workload"]:
                break
        else:
            raise AssertionError(first)
    finally:
        for server in servers:
            server.terminate()
            server.communicate()


def test_the_quick_start_of_the_readme(tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## Start in 60 seconds")[1].split("\n## ")[0]
    first, own = (block.text for block in blocks_of(section))
    run, test = first.splitlines()
    assert test.startswith("./x test")
    printed = run_commands(run.replace("./x run", "arclog run"), ROOT, tmp_path / "home")
    assert "hello completed" in printed
    printed = run_commands(own.replace("./x arclog", "arclog"), tmp_path, tmp_path / "home")
    assert "2 passed" in printed
    assert '{"greeting":"hello, Ada"}' in printed
    assert "playbook.started" in printed


def test_the_playbook_of_the_readme_has_no_problems(tmp_path: Path) -> None:
    (playbook,) = [
        block.text for block in blocks_of((ROOT / "README.md").read_text(encoding="utf-8")) if block.language == "yaml"
    ]
    (tmp_path / "orders.yaml").write_text(playbook, encoding="utf-8")
    assert "no problems found" in run_commands("arclog check --strict orders.yaml", tmp_path, tmp_path / "home")
