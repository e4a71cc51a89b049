"""A process that compiles playbooks for a server: requests come on its standard input, answers leave on its standard output.

Each message is four bytes of length and MessagePack. A request is (text, file, settings); an answer is (encoded plan,
findings), one of which is empty. It ends with its input.
"""

from __future__ import annotations

import resource
import struct
import sys
from typing import Any, BinaryIO

import msgspec

from arclog.model.errors import Finding, PlaybookError
from arclog.model.settings import Settings

LENGTH = struct.Struct("!I")
REQUEST = msgspec.msgpack.Decoder(tuple[str, str, dict[str, Any]])
ANSWER = msgspec.msgpack.Decoder(tuple[bytes, list[Finding]])


def packed(message: tuple[Any, ...]) -> bytes:
    """A message with its length before it."""
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body


def main(max_memory: int, source: BinaryIO, sink: BinaryIO) -> None:
    from arclog.plan import net
    from arclog.plan.build import build_or_raise
    from arclog.wiring.kinds import installed_kinds

    resource.setrlimit(resource.RLIMIT_AS, (max_memory, max_memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    kinds = installed_kinds()
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        text, file, settings = REQUEST.decode(source.read(LENGTH.unpack(head)[0]))
        answer: tuple[bytes, list[Finding]]
        try:
            answer = net.encode(build_or_raise(text, file, kinds, Settings(settings))), []
        except PlaybookError as problem:
            answer = b"", problem.findings
        sink.write(packed(answer))
        sink.flush()


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(1)
    except MemoryError:
        sys.exit(2)
