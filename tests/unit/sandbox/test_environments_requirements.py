"""Requirements: what is one, and which lists mean the same."""

from __future__ import annotations

import pytest

from arclog.sandbox.environments import NotARequirement, normalize_requirements


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
        ("a==1!2.0rc1.post2.dev3", "a==1!2.0rc1.post2.dev3"),
        ("a >= 2024-1", "a>=2024-1"),
        ("a[] ; extra == 'b'", "a ; extra == 'b'"),
        (
            "a ; (os_name=='posix'or(sys_platform != \"win32\")) and '3.9' not  in python_version",
            "a ; (os_name=='posix'or(sys_platform != \"win32\")) and '3.9' not in python_version",
        ),
        ("a ; ((((python_version < '3'))))", "a ; ((((python_version < '3'))))"),
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
    "text",
    ["a @ file:///srv/a.whl", "a@file:///srv/a.whl ; os_name == 'posix'", "a @ git+ssh://git@host/a", "a[b] @ https://x/a.whl",
     "a @ https://169.254.169.254/latest", "a[b @ https://x/]", "a[../b]", "a ; os_name == 'x' @ https://x/a.whl",
     "a ; os_name == 'x@https://x/'", "a @ ${HOME}/a.whl", "a==${X}", "a ; os_name == '${X}'", "a\\", "a \\\n b", "a # b",
     "a ; os_name == 'a' # b", "a ; b", "a ; os_name", "a ; os_name == b", "a ; (os_name == 'a'", "a ; os_name == 'a')",
     "a ; os_name == 'a' os_name == 'b'", "a ; 'x' (os_name == 'a')", "a ; --hash=sha256:00", "a==1.zip", "a==x",
     "a\u2028b", "a\u00a0==1", "a\t", "\x85a", "\u212a", "a" * 1001, "a;" + "(" * 990],
)  # fmt: skip
def test_nothing_but_names_versions_and_markers(text: str) -> None:
    with pytest.raises(NotARequirement, match=r"^requirements\[0\]: "):
        normalize_requirements([text])


def test_the_error_of_an_address_does_not_show_its_password() -> None:
    with pytest.raises(NotARequirement, match="addresses, files and repositories are not allowed") as caught:
        normalize_requirements(["a @ https://ann:hunter2@example.org/a.whl"])
    assert "hunter2" not in str(caught.value)


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
