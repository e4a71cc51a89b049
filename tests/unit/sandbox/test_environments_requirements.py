"""Requirements: what is one, and which lists mean the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from arclog.sandbox.environments import NotARequirement, installer_environment, normalize_requirements, source_of


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("rich", "rich"),
        (" Rich ", "rich"),
        ("zope.Interface_x", "zope-interface-x"),
        ("rich == 13.9.4", "rich==13.9.4"),
        ("rich (>=13, <14)", "rich<14,>=13"),
        ("rich>=13 , !=13.5.*,<14", "rich!=13.5.*,<14,>=13"),
        ("httpx[HTTP2, cli] ~= 0.27", "httpx[cli,http2]~=0.27"),
        ("a===1.0+local", "a===1.0+local"),
        ("a;python_version  <  '3.12'", "a ; python_version < '3.12'"),
        ("a @ https://example.org/a-1.whl#sha256=00", "a @ https://example.org/a-1.whl#sha256=00"),
        ("a@file:///srv/a.whl ; sys_platform == 'linux'", "a @ file:///srv/a.whl ; sys_platform == 'linux'"),
    ],
)
def test_one_form(text: str, line: str) -> None:
    assert normalize_requirements([text]).requirements == (line,)
    assert normalize_requirements([line]).requirements == (line,)


@pytest.mark.parametrize(
    "text",
    ["", " ", "-r x.txt", "--index-url=http://x", "-e .", "./local", "/abs/x.whl", "a b", "a==", "a==1 --hash=sha256:00",
     "a>=1;\nb", "a\x00", "a\nb", "git+https://x/y", "a[b", "a (>=1", "{{ x }}", "a==1,", "ä", "a @ nowhere"],
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    with pytest.raises(NotARequirement, match=r"^requirements\[1\]: "):
        normalize_requirements(["fine", text])


@pytest.mark.parametrize(
    ("text", "hint"), [("{{ x }}", "templates are not rendered here"), ("-r x", "python.find_links"), ("a b", "rich==")]
)
def test_what_to_write_instead(text: str, hint: str) -> None:
    with pytest.raises(NotARequirement, match=hint):
        normalize_requirements([text])


def test_lists_that_mean_the_same_share_a_digest() -> None:
    first = normalize_requirements(["B>=2,<3", "a"])
    assert first == normalize_requirements(["a", "b<3, >=2", "A"])
    assert first.digest != normalize_requirements(["a", "b<3"]).digest
    assert len(first.digest) == 32


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
    values = {"python.find_links": "wheels, https://example.org/x/ ,,", "python.offline": "true"}
    source = source_of(Settings(values))
    assert source.find_links == (str(tmp_path / "wheels"), "https://example.org/x/")
    assert source.offline
    assert source_of(Settings()).find_links == ()
