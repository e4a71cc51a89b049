"""Frames between the worker and a runner: three lengths, then three byte strings.

The worker's side is `sandbox.protocol`.
"""

from __future__ import annotations

import struct
from _socket import socket

LENGTHS = struct.Struct("<QQQ")


def receive(sock: socket, most: int = 0) -> tuple[bytes, bytes, bytes] | None:
    """Return the next frame, or None if the other side is gone. Raises ValueError for a frame of more than `most`
    bytes.
    """
    head = _exactly(sock, LENGTHS.size)
    if head is None:
        return None
    sizes = LENGTHS.unpack(head)
    if most and sum(sizes) > most:
        raise ValueError(f"a frame of {sum(sizes)} bytes")
    body = _exactly(sock, sum(sizes))
    if body is None:
        return None
    first, second = sizes[0], sizes[0] + sizes[1]
    return body[:first], body[first:second], body[second:]


def send(sock: socket, first: bytes, second: bytes = b"", third: bytes = b"") -> None:
    sock.sendall(b"".join((LENGTHS.pack(len(first), len(second), len(third)), first, second, third)))


def _exactly(sock: socket, count: int) -> bytes | None:
    piece = sock.recv(count) if count else b""
    if len(piece) == count:
        return piece
    if not piece:
        return None
    parts, missing = [piece], count - len(piece)
    while missing:
        piece = sock.recv(min(missing, 1 << 20))
        if not piece:
            return None
        parts.append(piece)
        missing -= len(piece)
    return b"".join(parts)
