"""A task that goes where it may, and tries to go where it may not. Runs inside of a sandbox: the standard library only."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import os
import select
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)


def _packed(host: str, port: int) -> bytes:
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton(host) + bytes(8)


def _connects(host: str, port: int) -> str:
    with socket.create_connection((host, port), 5) as sock:
        sock.sendall(b"ping")
        return sock.recv(4).decode()


def large_answer(at: dict[str, Any]) -> str:
    """Many bytes in both directions at once, and an end that is seen on the other side."""
    data = os.urandom(1 << 20) * 6
    with socket.create_connection(tuple(at["allowed"]), 20) as sock:

        def send() -> None:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        digest = hashlib.sha256()
        while part := sock.recv(65536):
            digest.update(part)
        sender.join()
    return "whole" if digest.digest() == hashlib.sha256(data).digest() else "broken"


def by_asyncio(at: dict[str, Any]) -> str:
    async def talk() -> str:
        reader, writer = await asyncio.open_connection(*at["allowed"])
        writer.write(b"ping")
        answer = await reader.readexactly(4)
        writer.close()
        return answer.decode()

    return asyncio.run(talk())


def by_many_threads(at: dict[str, Any]) -> str:
    got: list[str] = []
    threads = [threading.Thread(target=lambda: got.append(_connects(*at["allowed"]))) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return f"{got.count('ping')}"


def own_loopback(_: dict[str, Any]) -> str:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 5) as sock:
        return "same" if sock.getpeername() == server.getsockname() else "other"


def _lookup(name: str, kind: int) -> list[str]:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    question = struct.pack("!6H", 77, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(10)
        sock.connect(("127.0.0.1", 53))
        sock.send(question)
        answer = sock.recv(600)
    number, flags, _, count, _, _ = struct.unpack_from("!6H", answer)
    assert number == 77, number
    answers = [f"rcode {flags & 15}"]
    at = len(question)
    for _ in range(count):
        size = struct.unpack_from("!HHHIH", answer, at)[4]
        answers.append(socket.inet_ntop(socket.AF_INET, answer[at + 12 : at + 12 + size]))
        at += 12 + size
    return answers


def names(_: dict[str, Any]) -> dict[str, list[str]]:
    return {name: _lookup(name, 1) for name in ("inside.test", "outside.test", "both.test", "nowhere.invalid")}


# --- what it may not -------------------------------------------------------------------------------------------------------


def forbidden(at: dict[str, Any]) -> str:
    return _connects(*at["forbidden"])


def mapped(at: dict[str, Any]) -> str:
    with socket.socket(socket.AF_INET6) as sock:
        sock.settimeout(5)
        sock.connect((f"::ffff:{at['forbidden'][0]}", at["forbidden"][1]))
        return "connected"


def datagram(at: dict[str, Any]) -> str:
    """A list is about TCP: datagrams reach nobody, not even who is allowed."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.5)
        for host, port in (at["allowed"], at["forbidden"]):
            sock.sendto(b"ping", (host, port))
        return sock.recv(4).decode()


def fast_open(at: dict[str, Any]) -> str:
    with socket.socket() as sock:
        sock.settimeout(5)
        sock.sendto(b"ping", socket.MSG_FASTOPEN, tuple(at["forbidden"]))
        return sock.recv(4).decode()


def connected_again(at: dict[str, Any]) -> str:
    """A connection that is allowed is given up, and its socket connected to somebody else."""
    with socket.create_connection(tuple(at["allowed"]), 5) as sock:
        _libc.connect(sock.fileno(), struct.pack("=H", socket.AF_UNSPEC) + bytes(14), 16)
        sock.connect(tuple(at["forbidden"]))
        sock.sendall(b"ping")
        return sock.recv(4).decode()


def changed_address(at: dict[str, Any]) -> str:
    """The address changes in memory while somebody looks at it."""
    good, bad = _packed(*at["allowed"]), _packed(*at["forbidden"])
    shared = ctypes.create_string_buffer(good, 16)
    done = threading.Event()

    def change() -> None:
        while not done.is_set():
            ctypes.memmove(shared, bad, 16)
            ctypes.memmove(shared, good, 16)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(100):
            with socket.socket() as sock:
                _libc.connect(sock.fileno(), shared, 16)
    finally:
        done.set()
        changing.join()
    return ""  # the server that must not be reached tells


def changed_file(at: dict[str, Any]) -> str:
    """A connected socket takes the place of another one while somebody looks at it."""
    done = threading.Event()
    connected, other = socket.create_connection(tuple(at["allowed"]), 5), socket.socket(socket.AF_UNIX)
    place = os.dup(other.fileno())

    def change() -> None:
        while not done.is_set():
            os.dup2(connected.fileno(), place)
            os.dup2(other.fileno(), place)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for address in (struct.pack("=H", socket.AF_UNSPEC) + bytes(14), _packed(*at["forbidden"])) * 50:
            _libc.connect(place, address, 16)
    finally:
        done.set()
        changing.join()
        connected.close()
        other.close()
        os.close(place)
    return ""


def listener_of_the_relay(at: dict[str, Any]) -> str:
    """Whoever comes to the relay's own listener by itself gets nothing."""
    ports = [
        int(line.split()[1].rpartition(":")[2], 16) for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]
    ]
    for port in ports:
        with socket.socket() as sock:
            sock.settimeout(0.3)
            sock.connect(("127.0.0.1", port))
            sock.sendall(f"CONNECT {at['forbidden'][0]}:{at['forbidden'][1]} HTTP/1.1\r\n\r\n".encode())
            if select.select([sock], [], [], 0.3)[0] and sock.recv(10):
                return f"port {port} answers"
    return ""


def _relays() -> list[int]:
    return [
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and (folder / "comm").read_text().strip() == "arclog-relay"
    ]


def relay_opened(_: dict[str, Any]) -> str:
    got = []
    for pid in _relays():
        for name in ("mem", "environ", "ns/net", "fd/0", "fd/3", "root/etc/hosts"):
            path = Path(f"/proc/{pid}/{name}")
            for take in (path.readlink, path.read_bytes):
                try:
                    got.append(f"{name}: {take()!r:.80}")
                except OSError:
                    continue
    return ", ".join(got)


def relay_killed(at: dict[str, Any]) -> str:
    """Without its relay a task has no network."""
    for pid in _relays():
        os.kill(pid, 9)
    try:
        return _connects(*at["allowed"])
    except OSError:
        return _connects(*at["forbidden"])


WANTED = (large_answer, by_asyncio, by_many_threads, own_loopback, names)
FORBIDDEN = (
    forbidden,
    mapped,
    datagram,
    fast_open,
    connected_again,
    changed_address,
    changed_file,
    listener_of_the_relay,
    relay_opened,
    relay_killed,
)


def _got(attempt: Callable[[dict[str, Any]], Any], at: dict[str, Any]) -> Any:
    try:
        return attempt(at)
    except OSError as problem:
        return {"error": str(problem)} if attempt in WANTED else ""


def main(**at: Any) -> dict[str, Any]:
    return {attempt.__name__: _got(attempt, at) for attempt in (*WANTED, *FORBIDDEN)}
