"""What a program imports for a run of one task: start-up time is imports, so this is where it grows unnoticed.

If a test here fails because a run needs a new module, import the module where it is used; if every run needs it, raise the number.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

PLAYBOOK = "metadata: {name: small}\nworkflow:\n  - step: start\n    tool: {kind: noop}\n"
#: arclog's modules that a run of one noop task may import
MOST_OWN = 230
#: all modules, those of Python itself included
MOST = 430
#: large modules, and those of arclog that only some runs need
UNUSED = (
    "hashlib", "subprocess", "locale", "platform", "urllib.parse", "gettext",
    "ssl", "inspect", "dataclasses", "shutil", "tokenize", "copy", "hmac", "msgspec.inspect", "difflib", "json", "ipaddress", "importlib.metadata", "jinja2",
    "typing_extensions", "httpx2", "cryptography", "zstandard", "uvloop",
    "arclog.expr.compiler.compile", "arclog.expr.filters.table", "arclog.sandbox.confinement_settings", "arclog.sandbox.launcher",
    "arclog.engine.views.why", "arclog.engine.views.state", "arclog.engine.views.event_search", "arclog.engine.history",
    "arclog.engine.runs.schedules", "arclog.core.boundary.schedules", "arclog.stores.searching",
    "arclog.model.data.regex",
    "arclog.plan.lint.markings", "arclog.worker.local_files", "arclog.ports.bus", "arclog.ports.views.history",
    "arclog.client", "arclog.server", "arclog.stores.postgres", "arclog.testing",
)  # fmt: skip
#: those that a run of one python task must not import
UNUSED_BY_PYTHON = ("shutil", "mimetypes", "urllib.parse", "ipaddress", "difflib", "json", "arclog.engine.views.why")


def python(code: str, **variables: str) -> str:
    surroundings = {**os.environ, **variables}
    # -S -I: nothing of the test environment (coverage, .pth files) is imported before.
    paths = [path for path in sys.path if path.endswith("site-packages")]
    head = f"import sys; sys.path[:0] = {[str(ROOT / 'src'), *paths]!r}\n"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", head + code], capture_output=True, text=True, timeout=60, env=surroundings
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def modules_of_a_run(tmp_path, text):
    playbook = tmp_path / "small.yaml"
    playbook.write_text(text)
    code = (
        "from arclog.cli.main import command\n"
        f"code = command(['run', {str(playbook)!r}, '--json'])\n"
        "names = sorted(sys.modules)\n"
        "import json\n"
        "print(json.dumps([code, names]))\n"
    )
    code, names = json.loads(python(code, ARCLOG_HOME=str(tmp_path / "home")))
    assert code == 0
    return names


def test_a_run_imports_few_modules(tmp_path):
    names = modules_of_a_run(tmp_path, PLAYBOOK)
    assert [name for name in UNUSED if name in names] == []
    own = [name for name in names if name.split(".")[0] == "arclog"]
    assert len(own) <= MOST_OWN, f"{len(own)} modules of arclog"
    assert len(names) <= MOST, f"{len(names)} modules"


def test_a_python_task_loads_nothing_for_outputs_and_waits(tmp_path):
    task = "tool: {kind: python, code: 'def main(): return 1'}"
    names = modules_of_a_run(tmp_path, "# A small playbook.\n" + PLAYBOOK.replace("tool: {kind: noop}", task))
    assert "arclog.sandbox.launcher" in names
    assert [name for name in UNUSED_BY_PYTHON if name in names] == []


def test_parts_that_were_left_out_are_there_when_they_are_used():
    code = r"""
from arclog.cli.startup import import_packages
import_packages()
assert not {"ssl", "asyncio.sslproto", "inspect", "ipaddress", "shutil", "subprocess", "platform", "urllib.parse", "gettext"} & set(sys.modules)
import asyncio, logging, pathlib, platform, tempfile, textwrap, urllib.parse, yaml
assert "ssl" not in sys.modules
context = asyncio.base_events.ssl.create_default_context()
import ssl
assert type(context) is ssl.SSLContext and type(ssl).__name__ == "module"
assert asyncio.selector_events.sslproto.SSLProtocol is asyncio.base_events.sslproto.SSLProtocol
assert asyncio.iscoroutinefunction(asyncio.sleep)
import inspect, shutil
assert inspect.iscoroutinefunction(asyncio.sleep) and type(shutil).__name__ == "module"
assert urllib.parse.urlsplit("http://[::1]:80/").hostname == "::1"
with tempfile.TemporaryDirectory() as folder:
    (pathlib.Path(folder) / "file").touch()
assert not pathlib.Path(folder).exists()
assert yaml.safe_load("a: [1, 2.5, 2026-11-17, yes]")["a"][:2] == [1, 2.5]
assert textwrap.wrap("two words", 5) == ["two", "words"] and platform.python_version_tuple()[0] == "3"
import subprocess, uuid, pickle, datetime, gettext, argparse
assert (asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT, asyncio.subprocess.DEVNULL) == (subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL)
async def echo():
    process = await asyncio.create_subprocess_exec("echo", "hello", stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0]
assert asyncio.run(echo()) == b"hello\n"
assert uuid._LINUX is (platform.system() == "Linux") and type(platform).__name__ == "module"
assert pathlib.Path("/a b").as_uri() == "file:///a%20b"
moment = datetime.datetime(2026, 11, 18, tzinfo=datetime.UTC)
assert pickle.loads(pickle.dumps(moment)) == moment == datetime.datetime.fromisoformat("2026-11-18T00:00:00+00:00")
assert datetime.datetime.strptime("18.11.2026", "%d.%m.%Y").date() == datetime.date(2026, 11, 18)
assert hasattr(gettext, "translation") and "show this help message" in argparse.ArgumentParser().format_help()
import linecache, msgspec
assert linecache.getline(tempfile.__file__, 1) and msgspec.inspect.type_info(int) == msgspec.inspect.IntType()
print("ok")
"""
    assert python(code) == "ok"


def test_expressions_of_packages_are_compiled_when_they_are_used():
    code = """
import re
from arclog.cli.startup import import_packages
import_packages()
import gettext, locale, logging, string, tokenize, yaml
assert sys.modules["re"] is re and type(re.compile("a")) is re.Pattern
from arclog.model.data.lazy import PatternOnDemand
assert type(yaml.reader.Reader.NON_PRINTABLE) is PatternOnDemand
for loader in (yaml.SafeLoader, yaml.CSafeLoader):
    assert yaml.load("[2026-11-17, 1_000, 0b11, yes]", loader)[1:] == [1000, 3, True]
try:
    yaml.load("a: \\x01", yaml.SafeLoader)
except yaml.reader.ReaderError:
    pass
else:
    raise AssertionError("a character that YAML does not allow")
assert gettext.c2py("n != 1")(2) == 1  # calls re.finditer with a compiled expression
assert string.Template("$a ${b}").substitute(a=1, b=2) == "1 2"
assert locale.format_string("%d of %d", (1, 2)) == "1 of 2"
assert logging.Formatter("%(message)s") and next(tokenize.tokenize(iter([b"a = 1"]).__next__)).string == "utf-8"
print("ok")
"""
    assert python(code) == "ok"


def test_a_module_that_is_loaded_already_stays_as_it_is():
    code = """
import re, ssl, inspect
compile_of_re = re.compile
from arclog.cli.startup import import_packages
import_packages()
import asyncio
assert asyncio.base_events.ssl is ssl and asyncio.coroutines.inspect is inspect
assert re.compile is compile_of_re
print("ok")
"""
    assert python(code) == "ok"


def test_tls_works_after_a_lean_start(tmp_path):
    """Between a server and a client of one process whose asyncio was imported without ssl."""
    code = f"""
from arclog.cli.startup import import_packages
import_packages()
import asyncio
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.servers.certs import certificate
made = certificate(Path({str(tmp_path)!r}))
import ssl
serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
serving.load_cert_chain(made.chain, made.key)
asking = ssl.create_default_context(cafile=made.authority)

async def echo(reader, writer):
    writer.write((await reader.readline()).upper())
    await writer.drain()
    writer.close()

async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=serving)
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=asking, server_hostname="localhost")
        writer.write(b"hello\\n")
        print((await reader.readline()).decode().strip())
        writer.close()

asyncio.run(main())
"""
    assert python(code) == "HELLO"
