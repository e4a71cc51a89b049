"""What a hostile task tries. It runs as the code of a python task, so it imports nothing but the standard library.

Each attack returns what it got hold of; one that raises, or returns nothing, was stopped.
"""

# Attacks are written as an attacker writes them.
# ruff: noqa: PTH104, PTH115, PTH123, PTH208, SIM115

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal
import socket
import stat
import struct
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_X86 = os.uname().machine == "x86_64"
SYSCALLS = {
    "keyctl": 250 if _X86 else 219,
    "add_key": 248 if _X86 else 217,
    "bpf": 321 if _X86 else 280,
    "perf_event_open": 298 if _X86 else 241,
    "userfaultfd": 323 if _X86 else 282,
    "open_by_handle_at": 304 if _X86 else 265,
    "setns": 308 if _X86 else 268,
    "io_uring_setup": 425,
    "clone3": 435,
    "open_tree": 428,
    "pidfd_getfd": 438,
}
NEWUSER, NEWNS = 0x10000000, 0x00020000


def _syscall(name: str, *args: Any) -> int:
    result = int(_libc.syscall(ctypes.c_long(SYSCALLS[name]), *args))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _called(result: int) -> str:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "done"


def _read(path: str) -> str:
    with open(path, "rb") as file:
        return repr(file.read(200))


def _files_with(text: bytes, paths: list[str]) -> str:
    for path in paths:
        try:
            with open(path, "rb") as file:
                if text in file.read(1 << 20):
                    return path
        except OSError:
            continue
    return ""


def environment_of_the_worker(at: dict[str, Any]) -> str:
    numbers = [name for name in os.listdir("/proc") if name.isdigit()]
    return _files_with(at["canary"].encode(), [f"/proc/{number}/environ" for number in (*numbers, at["worker"])])


def own_environment(at: dict[str, Any]) -> str:
    return _files_with(at["canary"].encode(), ["/proc/self/environ", "/proc/1/environ"])


def memory_of_the_worker(at: dict[str, Any]) -> str:
    return _read(f"/proc/{at['worker']}/maps")


def files_of_the_worker(at: dict[str, Any]) -> str:
    folder = f"/proc/{at['worker']}/fd"
    return str([os.readlink(f"{folder}/{name}") for name in os.listdir(folder)])


def root_of_the_worker(at: dict[str, Any]) -> str:
    return _read(f"/proc/{at['worker']}/root{at['home']}/secrets.key")


def root_of_the_guard(at: dict[str, Any]) -> str:
    return _read(f"/proc/1/root{at['home']}/secrets.key")


def key_in_the_home(at: dict[str, Any]) -> str:
    return _read(f"{at['home']}/secrets.key")


def database_in_the_home(at: dict[str, Any]) -> str:
    return _read(f"{at['home']}/arclog.db")


def link_to_the_database(at: dict[str, Any]) -> str:
    os.link(f"{at['home']}/arclog.db", f"{os.environ['ARCLOG_SCRATCH']}/stolen")
    return "linked"


def file_in_the_home(at: dict[str, Any]) -> str:
    """In its own home a task may write what it likes; the test looks at the real one."""
    with open(f"{at['home']}/planted", "w") as file:
        file.write("x")
    return ""


def home_moved_away(at: dict[str, Any]) -> str:
    os.rename(at["home"], f"{at['home']}-moved")
    return "moved"


def key_file(at: dict[str, Any]) -> str:
    text = _read(at["key_file"])
    return text if text != "b''" else ""


def folder_of_another_task(at: dict[str, Any]) -> str:
    return str(os.listdir(at["other_task"]))


def file_of_another_task(at: dict[str, Any]) -> str:
    with open(f"{at['other_task']}/planted", "w") as file:
        file.write("x")
    return "written"


def signal_to_the_worker(at: dict[str, Any]) -> str:
    os.kill(at["worker"], 0)
    return "sent"


def signal_to_the_zygote(at: dict[str, Any]) -> str:
    for number in at["zygotes"]:
        os.kill(number, 0)
    return "sent"


def signal_to_everybody(at: dict[str, Any]) -> str:
    """SIGWINCH hurts nobody; who is reached besides this process is in /proc."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in (os.getpid(), 1, *at.get("own", ())):
            os.kill(int(name), signal.SIGWINCH)
            return f"sent to {name}"
    return ""


def kill_of_the_guard(at: dict[str, Any]) -> str:
    if os.getppid() != 1:
        raise PermissionError("its number is not known")
    os.kill(1, signal.SIGKILL)  # the first process of a namespace is not killed from inside
    return ""


def trace_of_the_worker(at: dict[str, Any]) -> str:
    return _called(_libc.ptrace(0x4206, at["worker"], None, None))  # PTRACE_SEIZE, which does not stop it


def memory_by_system_call(at: dict[str, Any]) -> str:
    place = mmap.mmap(-1, 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(place))
    span = struct.pack("QQ", address, 16)
    try:
        return _called(_libc.process_vm_readv(at["worker"], span, 1, span, 1, 0))
    except OSError as problem:
        if problem.errno == errno.EFAULT:  # allowed, and nothing is at our address there
            return "allowed"
        raise


def descriptor_of_the_worker(at: dict[str, Any]) -> str:
    handle = os.pidfd_open(at["worker"])
    try:
        return str(_syscall("pidfd_getfd", handle, 0, 0))
    finally:
        os.close(handle)


def inherited_files(at: dict[str, Any]) -> str:
    """Beside the standard streams a task has the socket that its work comes by."""
    kinds = []
    for number in range(3, 256):
        try:
            mode = os.fstat(number).st_mode
        except OSError:
            continue
        kinds.append("socket" if stat.S_ISSOCK(mode) else os.readlink(f"/proc/self/fd/{number}"))
    unexpected = [kind for kind in kinds if kind != "socket" and "/dev/null" not in kind and "pipe:" not in kind]
    return str(unexpected) if unexpected or kinds.count("socket") > 1 else ""


def loopback_of_the_machine(at: dict[str, Any]) -> str:
    with socket.create_connection(("127.0.0.1", at["port"]), timeout=5) as connection:
        return repr(connection.recv(10))


def abstract_socket(at: dict[str, Any]) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("\0" + at["abstract"])
        return "connected"


def socket_in_a_folder(at: dict[str, Any]) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(at["socket"])
        return "connected"


def vsock(at: dict[str, Any]) -> str:
    with socket.socket(40, socket.SOCK_STREAM):
        return "made"


def raw_packets(at: dict[str, Any]) -> str:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW):
        return "made"


def share_of_a_port(at: dict[str, Any]) -> str:
    """What a server of several processes has: whoever of its user binds the port, too, gets some of its requests."""
    with socket.socket() as server, socket.socket() as thief:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("127.0.0.1", 0))
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        thief.bind(server.getsockname())
        return "shared"


def shared_memory_of_others(at: dict[str, Any]) -> str:
    return _read(f"/dev/shm/{at['shared']}")


def unmounted_proc(at: dict[str, Any]) -> str:
    return _called(_libc.umount2(b"/proc", 2))


def mounted_proc(at: dict[str, Any]) -> str:
    return _called(_libc.mount(b"proc", os.environ["ARCLOG_SCRATCH"].encode(), b"proc", 0, None))


def remounted_root(at: dict[str, Any]) -> str:
    return _called(_libc.mount(None, b"/", None, 32 | 4096, None))


def user_namespace(at: dict[str, Any]) -> str:
    return _called(_libc.unshare(NEWUSER))


def mount_namespace(at: dict[str, Any]) -> str:
    return _called(_libc.unshare(NEWNS))


def cloned_namespace(at: dict[str, Any]) -> str:
    pid = int(_libc.syscall(ctypes.c_long(56 if _X86 else 220), NEWUSER | 17, None, None, None, None))
    if pid == 0:
        os._exit(0)
    _called(pid)
    os.waitpid(pid, 0)
    return "cloned"


def clone3(at: dict[str, Any]) -> str:
    return str(_syscall("clone3", None, 0))


def namespace_of_the_guard(at: dict[str, Any]) -> str:
    handle = os.open("/proc/1/ns/mnt", os.O_RDONLY)
    return str(_syscall("setns", handle, 0))


def root_changed(at: dict[str, Any]) -> str:
    os.chroot(os.environ["ARCLOG_SCRATCH"])
    return "changed"


def device_made(at: dict[str, Any]) -> str:
    os.mknod(f"{os.environ['ARCLOG_SCRATCH']}/disk", stat.S_IFBLK | 0o600, os.makedev(254, 0))
    return "made"


def disk(at: dict[str, Any]) -> str:
    for name in ("vda", "sda", "nvme0n1", "mem", "kmsg"):
        try:
            os.close(os.open(f"/dev/{name}", os.O_RDONLY))
        except OSError:
            continue
        return name
    return ""


def kernel_setting(at: dict[str, Any]) -> str:
    os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
    return "opened for writing"


def kernel_trigger(at: dict[str, Any]) -> str:
    os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY))
    return "opened for writing"


def control_group(at: dict[str, Any]) -> str:
    for place, _, files in os.walk("/sys/fs/cgroup"):
        if "cgroup.procs" in files:
            os.close(os.open(f"{place}/cgroup.procs", os.O_WRONLY))
            return "opened for writing"
    return ""


def program_changed(at: dict[str, Any]) -> str:
    os.close(os.open("/usr/bin/env", os.O_WRONLY))
    return "opened for writing"


def keyring(at: dict[str, Any]) -> str:
    return str(_syscall("keyctl", 0, -3, 1, 0, 0))


def key_added(at: dict[str, Any]) -> str:
    return str(_syscall("add_key", b"user", b"arclog", b"x", 1, -3))


def io_uring(at: dict[str, Any]) -> str:
    os.close(_syscall("io_uring_setup", 8, ctypes.create_string_buffer(256)))
    return "made"


def bpf(at: dict[str, Any]) -> str:
    return str(_syscall("bpf", 5, ctypes.create_string_buffer(128), 128))


def perf(at: dict[str, Any]) -> str:
    return str(_syscall("perf_event_open", ctypes.create_string_buffer(128), 0, -1, -1, 0))


def userfault(at: dict[str, Any]) -> str:
    os.close(_syscall("userfaultfd", 1))
    return "made"


def file_by_handle(at: dict[str, Any]) -> str:
    return str(_syscall("open_by_handle_at", -100, struct.pack("Ii", 8, 1) + bytes(8), 0))


def setuid_program(at: dict[str, Any]) -> str:
    """A copy of `id` that belongs to root and is setuid."""
    import subprocess

    if os.getuid() == 0:
        return ""
    printed = subprocess.run([at["setuid"], "-u"], capture_output=True, text=True, check=True).stdout.strip()
    return printed if printed == "0" else ""


def new_privileges(at: dict[str, Any]) -> str:
    lines = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines() if ":" in line)
    return "" if lines["NoNewPrivs"].strip() == "1" else "NoNewPrivs is off"


def capabilities(at: dict[str, Any]) -> str:
    lines = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines() if ":" in line)
    held = {name: int(lines[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")}
    allowed = at["capabilities"]
    bounding = held.pop("CapBnd")  # that of an ordinary user stays as it is where it has no right to change it
    over = {name: hex(value) for name, value in held.items() if value & ~allowed}
    return str(over) if over or (os.getuid() == 0 and bounding & ~allowed) else ""


def program_in_memory(at: dict[str, Any]) -> str:
    """A program that is in no file has no more rights than its task."""
    import subprocess

    memory = os.memfd_create("program")
    with open("/bin/cat", "rb") as program:
        os.write(memory, program.read())
    path = f"/proc/{os.getpid()}/fd/{memory}"
    done = subprocess.run([path, f"{at['home']}/secrets.key"], capture_output=True, check=True)
    return repr(done.stdout)


def typed_into_a_terminal(at: dict[str, Any]) -> str:
    import fcntl
    import pty

    _, slave = pty.openpty()
    fcntl.ioctl(slave, 0x5412, b"x")
    return "typed"


def many_processes(at: dict[str, Any]) -> int:
    """As many as the kernel gives, each with a name to find it by."""
    _libc.prctl(15, at["name"].encode(), 0, 0, 0)
    for count in range(at["most"]):
        try:
            if os.fork() == 0:
                signal.pause()
                os._exit(0)
        except OSError:
            return count
    return int(at["most"])


def process_left_behind(at: dict[str, Any]) -> str:
    """Leaves its session and its parent, heeds no signal, and kills whom it can reach of those that might end it."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _libc.prctl(15, at["name"].encode(), 0, 0, 0)
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            for pid in (os.getppid(), *at["zygotes"]):
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    continue
            while True:
                signal.pause()
        os._exit(0)
    os.wait()
    return "left"


#: What each promise of `sandbox.probe` keeps from a task; those of '' hold everywhere.
BY_PROMISE = {
    "": [own_environment, inherited_files],
    "files": [
        root_of_the_worker,
        root_of_the_guard,
        key_in_the_home,
        database_in_the_home,
        link_to_the_database,
        file_in_the_home,
        key_file,
        folder_of_another_task,
        file_of_another_task,
        program_in_memory,
        disk,
        home_moved_away,
    ],
    "writes": [program_changed, kernel_setting, kernel_trigger, control_group],
    "processes": [
        environment_of_the_worker,
        memory_of_the_worker,
        files_of_the_worker,
        signal_to_the_worker,
        signal_to_the_zygote,
        signal_to_everybody,
        kill_of_the_guard,
        trace_of_the_worker,
        memory_by_system_call,
        descriptor_of_the_worker,
    ],
    "privileges": [
        new_privileges,
        capabilities,
        setuid_program,
        device_made,
        raw_packets,
        vsock,
        share_of_a_port,
        bpf,
        perf,
        file_by_handle,
        namespace_of_the_guard,
        typed_into_a_terminal,
        cloned_namespace,
        clone3,
        keyring,
        key_added,
        io_uring,
        userfault,
        mount_namespace,
        mounted_proc,
        remounted_root,
        unmounted_proc,
        user_namespace,
        root_changed,
    ],
    "network": [loopback_of_the_machine],
    "sockets": [abstract_socket, socket_in_a_folder, shared_memory_of_others],
}


def main(at: dict[str, Any]) -> dict[str, str]:
    """What each attack got; '' when it was stopped. Those that would change this process for good come last."""
    got = {}
    for promise in sorted(BY_PROMISE, key="privileges".__eq__):
        for attack in BY_PROMISE[promise]:
            try:
                got[attack.__name__] = attack(at)
            except Exception:
                got[attack.__name__] = ""
    return got
