"""Wheels made by hand, for tests of environments: no build tool and no network."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from zipfile import ZipFile


def wheel(folder: Path, name: str, version: str, code: str, *, needs: tuple[str, ...] = (), script: str = "") -> Path:
    """A wheel of one module with the package's name; `script` names a program that runs its `main`."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": metadata + "".join(f"Requires-Dist: {need}\n" for need in needs),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if script:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{script} = {name}:main\n"
    lines = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(text.encode())}\n")
    files[f"{info}/RECORD"] = "".join([*lines, f"{info}/RECORD,,\n"])
    made = folder / f"{name}-{version}-py3-none-any.whl"
    with ZipFile(made, "w") as archive:
        for place, text in files.items():
            archive.writestr(place, text)
    return made
