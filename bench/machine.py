"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib import metadata
from statistics import median

from bench.harness import ROOT


def machine(folder: str) -> dict[str, str]:
    apsw = subprocess.run(
        [sys.executable, "-c", "import apsw; print(apsw.sqlite_lib_version())"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": str(os.cpu_count()),
        "processor": _processor(),
        "python speed": f"{loop_ms():.0f} ms for a million additions, before",
        "load before": f"{os.getloadavg()[0]:.2f}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": f"{apsw.stdout.strip()} (apsw)",
        "dbos": _version("dbos"),
        "disk": _file_system(folder),
        "fdatasync": f"{fdatasync_us(folder):.0f} µs with 4 kB, before",
        "commit": _commit(),
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed: left out"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def _file_system(folder: str) -> str:
    """The type of the file system that `folder` is on."""
    place = os.path.realpath(folder or tempfile.gettempdir())
    best, kind = "", "unknown"
    try:
        with open("/proc/mounts", encoding="utf-8") as file:
            for line in file:
                _, mount, fs = line.split()[:3]
                if os.path.commonpath([place, mount]) == mount and len(mount) >= len(best):
                    best, kind = mount, fs
    except OSError:
        pass
    return kind


def loop_ms(times: int = 5) -> float:
    """How long a loop of pure Python takes. Hosts of one kind differ by a factor of two, and from hour to hour."""
    taken: list[float] = []
    for _ in range(times):
        started = time.perf_counter()
        total = 0
        for number in range(1_000_000):
            total += number
        taken.append((time.perf_counter() - started) * 1e3)
    return median(taken)


def fdatasync_us(folder: str, times: int = 100) -> float:
    taken: list[float] = []
    sync = getattr(os, "fdatasync", os.fsync)
    with tempfile.TemporaryFile(dir=folder or None, buffering=0) as file:
        for _ in range(times):
            started = time.perf_counter()
            file.write(b"x" * 4096)
            sync(file.fileno())
            taken.append((time.perf_counter() - started) * 1e6)
    return median(taken)


def _commit() -> str:
    git = ["git", "-C", ROOT]
    try:
        head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        changes = subprocess.run([*git, "status", "--porcelain", "src"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + (" with changes in src" if changes.stdout.strip() else "")
