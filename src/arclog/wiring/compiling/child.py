"""A process that compiles playbooks for a server: requests arrive on its standard input, answers are written to its
standard output.

Each message is four bytes of length and MessagePack. A request is (what, text, file, settings, files). The answer to
PLAN is (encoded plan, findings), one of which is empty; to CHECK it is (the graph as JSON, or nothing; findings). Both
also contain whether the playbook was heavy. The process ends when its input is closed.

It has a lower priority than the server; once a playbook has turned out to be heavy, it runs only when the processor is
idle. So its time limit counts processor time: on a busy server, elapsed time says little about a playbook. SIGXCPU ends
a process that exceeds it. If memory runs out, the kernel kills it first.
"""

from __future__ import annotations

import math
import os
import resource
import signal
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from arclog.model.config.settings import Settings
from arclog.model.errors import Finding

LENGTH = struct.Struct("!I")
#: Kinds of requests.
PLAN, CHECK = "plan", "check"
#: The program of the interpreter: it lowers its priority before it imports anything, which takes longer than most
#: playbooks.
PROGRAM = "import os; os.nice(10); from arclog.wiring.compiling.child import serve; serve()"
#: Processor time after which a playbook is heavy.
_LIGHT_S = 0.25
#: From then on it pauses after each slice: even a process of the lowest priority slows others down where cores share hardware.
_SLICE_S, _PAUSE_S = 0.010, 0.010
_FIRST_TO_GO = "1000"
REQUEST = msgspec.msgpack.Decoder(tuple[str, str, str, dict[str, Any], dict[str, str]])
ANSWER = msgspec.msgpack.Decoder(tuple[bytes, list[Finding], bool])


def packed(message: tuple[Any, ...]) -> bytes:
    """A message with its length before it."""
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body


def main(max_memory: int, source: BinaryIO, sink: BinaryIO) -> None:
    from arclog.plan import draw, net
    from arclog.plan.build import build
    from arclog.wiring.kinds import installed_kinds

    resource.setrlimit(resource.RLIMIT_AS, (max_memory, max_memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)
    kinds = installed_kinds()
    heavy: list[bool] = []
    #: processor time of this process at which the current playbook has used up its limit
    end = math.inf

    def yield_to_others(*_: object) -> None:
        if time.process_time() >= end:
            signal.raise_signal(signal.SIGXCPU)
        if not heavy:
            heavy.append(True)
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        time.sleep(_PAUSE_S)

    signal.signal(signal.SIGPROF, yield_to_others)
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        kind, text, file, settings, files = REQUEST.decode(source.read(LENGTH.unpack(head)[0]))
        limit = float(settings["compile.timeout_s"])
        end = time.process_time() + limit
        # The handler runs between two instructions of Python; the kernel's limit, in whole seconds, also ends native code.
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(end), resource.RLIM_INFINITY))
        signal.setitimer(signal.ITIMER_PROF, min(_LIGHT_S, limit), _SLICE_S)
        built = build(text, file, kinds, Settings(settings), files)
        body, findings = b"", built.findings
        if kind == CHECK:
            body = b"" if built.plan is None else msgspec.json.encode(draw.as_json(built.plan))
        elif built.plan is not None:
            body, findings = net.encode(built.plan), []
        signal.setitimer(signal.ITIMER_PROF, 0)
        sink.write(packed((body, findings, bool(heavy))))
        sink.flush()


def serve() -> None:
    """Serve the process that started this one."""
    try:
        main(int(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(1)
    except MemoryError:
        sys.exit(2)
