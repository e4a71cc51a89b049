"""A list in `tasks.allow_networks`: tasks reach what it names, and nothing else, whatever they do to whoever looks after that."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from arclog.drivers.http.guard import listed_networks
from arclog.model.errors import SettingsError
from arclog.sandbox.child.networks import Networks, question_of
from tests.security.reaching_task import FORBIDDEN

_ROOT = Path(__file__).parents[2]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users, and names hosts")


def reached(user: str, lacking: str = "") -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="arclog-reaching-") as folder:
        spec = {"folder": folder, "user": user, "lacking": lacking}
        done = subprocess.run(
            [sys.executable, "-m", "tests.security.reaching", json.dumps(spec)],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@needs_root
@pytest.mark.parametrize("user", ["root", "ordinary"])
def test_tasks_reach_what_the_list_names_and_nothing_else(user: str) -> None:
    answer = reached(user)
    got = answer["got"]
    assert answer["rests_on"] == "a network namespace with a relay to the networks of tasks.allow_networks"
    assert {name: got[name] for name in ("large_answer", "by_asyncio", "by_many_threads", "own_loopback")} == {
        "large_answer": "whole",
        "by_asyncio": "ping",
        "by_many_threads": "40",
        "own_loopback": "same",
    }
    assert got["names"] == {
        "inside.test": ["rcode 0", "127.0.0.2"],
        "outside.test": ["rcode 0"],
        "both.test": ["rcode 0", "127.0.0.2"],
        "nowhere.invalid": got["names"]["nowhere.invalid"],
    }
    assert got["names"]["nowhere.invalid"] in (["rcode 3"], ["rcode 2"]), "a machine without a network cannot tell"
    assert {attempt.__name__: got[attempt.__name__] for attempt in FORBIDDEN} == dict.fromkeys(
        (attempt.__name__ for attempt in FORBIDDEN), ""
    )
    assert answer["reached"]["forbidden"] == []
    assert set(answer["reached"]["allowed"]) == {"tcp"}
    assert answer["shell"] == "True"
    assert "tasks.allow_networks" in answer["refused"], "a refusal names the setting"


@needs_root
def test_without_namespaces_a_list_allows_nothing() -> None:
    answer = reached("ordinary", "namespaces")
    assert "tasks have no network" in answer["rests_on"]
    assert answer["reached"] == {"allowed": [], "forbidden": []}
    assert answer["shell"] == ""


def networks(text: str) -> Networks:
    return Networks(listed_networks(text, "tasks.allow_networks"))


def packed(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


@pytest.mark.parametrize(
    ("allowed", "address", "permitted"),
    [
        ("10.0.0.0/8", "10.255.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.0/8", "8.8.8.8", False),
        ("10.0.0.0/8", "::ffff:10.0.0.1", True),
        ("10.0.0.0/8", "::ffff:11.0.0.1", False),
        ("192.0.2.7", "192.0.2.7", True),
        ("192.0.2.7", "192.0.2.8", False),
        ("fd00::/8", "fd00::1", True),
        ("fd00::/8", "fe80::1", False),
        ("public", "8.8.8.8", True),
        ("public", "2600::1", True),
        ("public", "10.0.0.1", False),
        ("public", "127.0.0.1", False),
        ("public", "::1", False),
        ("public", "::ffff:127.0.0.1", False),
        ("public", "2002:7f00:1::", False),
        ("public", "64:ff9b::a00:1", False),
        ("public", "fd00::1", False),
        ("public", "169.254.169.254", False),
        ("public, private", "10.0.0.1", True),
        ("private", "8.8.8.8", False),
        ("loopback", "127.0.0.1", True),
        ("169.254.0.0/16", "169.254.1.1", True),
        ("169.254.0.0/16", "169.254.169.254", False),
        ("169.254.169.254", "169.254.169.254", True),
        ("fd00::/8", "fd00:ec2::254", False),
        ("64:ff9b::/96", "64:ff9b::a9fe:a9fe", False),
        ("64:ff9b::/96", "64:ff9b::a00:1", True),
        ("169.254.169.254", "::ffff:169.254.169.254", True),
    ],
)
def test_networks_of_a_list(allowed: str, address: str, permitted: bool) -> None:
    assert networks(allowed).permits(packed(address)) is permitted


@pytest.mark.parametrize("text", ["10.0.0.1/8", "corp.example", "10.0.0.0/99", "all, 10.0.0.0/8"])
def test_a_list_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"tasks\.allow_networks"):
        networks(text)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        bytes(12),
        bytes(12) + b"\x03ab",
        bytes(12) + b"\x03abc\x00\x00",
        bytes(12) + b"\xc0\x0c\x00\x01\x00\x01",
        bytes(12) + b"\x03a.c\x00\x00\x01\x00\x01",
        bytes(12) + b"\x03abc\x00\x00\x01\x00\x03",
    ],
)
def test_questions_that_cannot_be_read(message: bytes) -> None:
    assert question_of(message) is None
