"""The console as a package: small, locked, in the wheel and the source distribution, and never in the repository."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import ROOT
from tests.browser.conftest import Furnished

pytestmark = pytest.mark.xdist_group("browser-1")

STATIC = ROOT / "src/arclog/server/static"
#: Bytes, compressed by gzip: what a first look may cost.
FIRST_LOAD = 300_000


def test_a_first_look_is_small(page: Page, furnished: Furnished) -> None:
    page.goto(furnished.url)
    expect(page.get_by_role("region", name="Needs attention")).to_be_visible()
    page.wait_for_timeout(500)  # what is loaded while nobody waits counts, too
    loaded = page.evaluate("() => performance.getEntriesByType('resource').map((one) => new URL(one.name).pathname)")
    files = {path for path in loaded if not path.startswith("/api/")} | {"/index.html"}
    assert any(path.endswith(".js") for path in files)
    sizes = {path: _size(STATIC / path.strip("/")) for path in files}
    assert sum(sizes.values()) <= FIRST_LOAD, sizes


def _size(path: Path) -> int:
    packed = path.with_name(path.name + ".gz")
    return (packed if packed.exists() else path).stat().st_size


@pytest.mark.parametrize("folder", ["ui", "tests/browser"])
def test_the_lock_has_hashes_and_no_addresses(folder: str) -> None:
    text = (ROOT / folder / "package-lock.json").read_text(encoding="utf-8")
    assert "resolved" not in text
    packages = {name: entry for name, entry in json.loads(text)["packages"].items() if name}
    for package in packages.values():
        assert package["integrity"]
        package.pop("funding", None)  # where to support its authors
    assert "://" not in json.dumps(packages)


def test_what_is_built_is_in_no_commit() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is not a clone")
    names = listed.stdout.splitlines()
    assert "ui/package-lock.json" in names
    assert not [name for name in names if "node_modules" in name or name.startswith("src/arclog/server/static")]


def test_wheel_and_source_distribution_hold_the_console(built: None, tmp_path: Path) -> None:
    # It is built already: nothing is fetched, and Node is not needed.
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "arclog/server/static/index.html" in names
    assert any(name.startswith("arclog/server/static/assets/") and name.endswith(".js.br") for name in names)
    assert not [name for name in names if "node_modules" in name or name.endswith(".tsx")]
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "src/arclog/server/static/index.html",
        "ui/src/main.tsx",
        "ui/package-lock.json",
        "hatch_build.py",
    } <= inside
    assert not [name for name in inside if "node_modules" in name]


def test_the_units_hold() -> None:
    subprocess.run([ROOT / "x", "ui", "test"], check=True, capture_output=True)
