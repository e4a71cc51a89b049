"""Installers: what they are given, which steps are confined, and what their failures mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from arclog.sandbox.confinement_settings import confinement_of, for_server, while_building
from arclog.sandbox.installers import (
    PIP,
    Installer,
    InstallFolders,
    Reach,
    Source,
    confined_environment,
    files_for,
    has_to_build,
    installer_environment,
    installer_failure,
    source_of,
)

UV = Installer("uv", "/usr/bin/uv")
FOLDERS = InstallFolders(Path("/e/digest"), Path("/e/digest.installing"))
ONLINE = Source(offline=False, find_links=())
REFUSED = "error sending request for url (https://pypi.org/simple/tiny/): dns error"


def test_an_installer_sees_what_it_needs_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "ARCLOG_HOME", "PYTHONPATH", "VIRTUAL_ENV", "UV_PYTHON", "PIP_TARGET"):
        monkeypatch.setenv(name, "canary")
    for name in ("UV_INDEX_URL", "PIP_CERT", "https_proxy", "NO_PROXY", "SSL_CERT_FILE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "passed")
    seen = installer_environment(Path("/work"))
    assert "canary" not in seen.values()
    assert sum(value == "passed" for value in seen.values()) == 6
    assert seen["TMPDIR"] == "/work"
    assert seen["UV_LINK_MODE"] == "copy"
    monkeypatch.setenv("UV_LINK_MODE", "clone")
    assert installer_environment(Path("/work"))["UV_LINK_MODE"] == "clone"


def test_where_packages_come_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    values = {
        "python.find_links": "wheels, https://example.org/x/ ,,",
        "python.offline": "true",
        "python.only_wheels": "true",
    }
    source = source_of(Settings(values))
    assert source.find_links == (str(tmp_path / "wheels"), "https://example.org/x/")
    assert source.offline
    assert source.only_wheels
    assert not source_of(Settings()).only_wheels
    assert source_of(Settings()).find_links == ()


def test_steps_that_run_code_of_packages_are_confined() -> None:
    first = UV.steps(FOLDERS, ("tiny",), ONLINE, builds=False)
    assert [step.is_confined for step in first] == [False, False, False]
    assert "--no-build" in first[1].command
    again = UV.steps(FOLDERS, ("tiny",), ONLINE, builds=True)
    assert [step.is_confined for step in again] == [False, True, True]
    assert "--no-build" not in again[1].command
    for builds in (True, False):
        steps = PIP.steps(FOLDERS, ("tiny",), ONLINE, builds=builds)
        assert [step.is_confined for step in steps] == [False, False, True]
        assert ("--only-binary" in steps[2].command) is not builds


def test_a_confined_installer_has_a_home_and_a_cache_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    (home / ".config" / "uv").mkdir(parents=True)
    (home / ".pip").mkdir()
    for name in (".config/uv/uv.toml", ".netrc", ".pip/pip.conf", "other"):
        (home / name).touch()
    for name in ("XDG_CONFIG_HOME", "NETRC", "PIP_CONFIG_FILE", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    for name in ("UV_CACHE_DIR", "PIP_CACHE_DIR", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(home / "shared"))
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", f"file://{wheels} https://example.org/x")
    variables = confined_environment(FOLDERS)
    assert not any("shared" in value for value in variables.values())
    own_folder = FOLDERS.work
    assert all(Path(variables[name]).is_relative_to(own_folder) for name in ("HOME", "TMPDIR", "UV_CACHE_DIR"))

    read = files_for(UV, FOLDERS, Source(offline=False, find_links=("/nowhere", "https://x/y")), variables)

    own = {path for path in read if path.startswith(str(tmp_path))}
    named = (home / ".config/uv/uv.toml", home / ".netrc", home / ".pip/pip.conf", wheels)
    assert own == {str(path) for path in named}


@pytest.mark.parametrize(
    ("value", "level", "served", "network"),
    [("", "standard", False, "all"), ("", "standard", True, "list"), ("", "strict", False, "none"), ("", "strict", True, "none"),
     ("10.0.0.0/8", "strict", True, "list"), ("none", "standard", False, "none"), ("all", "standard", True, "all")],
)  # fmt: skip
def test_the_network_of_builds(value: str, level: str, served: bool, network: str, tmp_path: Path) -> None:
    settings = Settings({"python.build_networks": value, "tasks.confinement": level})
    settings = for_server(settings) if served else settings
    tasks = confinement_of(settings, tmp_path)
    assert tasks is not None
    building = while_building(tasks, settings)
    assert (building.network, building.write) == (network, ())
    assert building.hidden == tasks.hidden


def test_the_workers_of_a_server_on_the_own_machine_build_with_all_networks() -> None:
    assert for_server(Settings(), is_own_machine=True).text("python.build_networks") == "all"


@pytest.mark.parametrize(
    "line",
    ["hint: Wheels are required for `tiny` because building from source is disabled for all packages (i.e., with `--no-build`)",
     "  cause: Because tiny==2.0 has no usable wheels and you require tiny==2.0", "error: Building `tiny` is disabled"],
)  # fmt: skip
def test_a_package_that_has_to_be_built(line: str) -> None:
    assert has_to_build(["Using Python", line])
    assert not has_to_build(["Because only tiny==2.0 is available and you require tiny>=3"])


@pytest.mark.parametrize(
    ("reach", "kind", "words"),
    [(Reach.UNCONFINED, "connection", "a retry may help"), (Reach.ALL, "connection", "a retry may help"),
     (Reach.LIST, "connection", "python.build_networks"), (Reach.NONE, "config", "it has no network"),
     (Reach.REFUSED, "config", "arclog doctor")],
)  # fmt: skip
def test_a_registry_out_of_reach(reach: Reach, kind: str, words: str, tmp_path: Path) -> None:
    problem = installer_failure(UV, "tiny", ONLINE, [REFUSED], tmp_path / "notes", reach)
    assert (problem.kind, problem.code) == (kind, "REGISTRY")
    assert words in problem.message
    assert ("wheels in python.find_links" in problem.message) == (reach not in (Reach.UNCONFINED, Reach.ALL))


def test_notes_that_a_package_has_replaced_are_not_read(tmp_path: Path) -> None:
    import os

    notes, secret = tmp_path / "notes", tmp_path / "secret"
    secret.write_text(f"WARNING {REFUSED}")
    lines = ["it failed"]
    notes.symlink_to(secret)
    assert installer_failure(PIP, "tiny", ONLINE, lines, notes, Reach.ALL).code == "REQUIREMENTS"
    notes.unlink()
    os.mkfifo(notes)
    assert installer_failure(PIP, "tiny", ONLINE, lines, notes, Reach.ALL).code == "REQUIREMENTS"
    notes.unlink()
    notes.write_text(f"WARNING {REFUSED}")
    assert installer_failure(PIP, "tiny", ONLINE, lines, notes, Reach.ALL).code == "REGISTRY"
