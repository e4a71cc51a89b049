"""Wheels made by hand, for tests of environments: no build tool and no network."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile, ZipInfo


def wheel(
    folder: Path,
    name: str,
    version: str,
    code: str,
    *,
    needs: tuple[str, ...] = (),
    script: str = "",
    more: Mapping[str, str] | None = None,
) -> Path:
    """A wheel of one module with the package's name; `script` names a program that runs its `main`, `more` has further
    files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": metadata + "".join(f"Requires-Dist: {need}\n" for need in needs),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **(more or {}),
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
            entry = ZipInfo(place)
            entry.external_attr = (0o100755 if text.startswith("#!") else 0o100644) << 16
            archive.writestr(entry, text)
    return made


def source_package(
    folder: Path, name: str, version: str, attack: str = "", *, more: Mapping[str, str] | None = None
) -> Path:
    """A package in source form whose build executes the code `attack`. What that leaves in `got` is in the module. `more` has
    further files of the wheel.
    """
    folder.mkdir(parents=True, exist_ok=True)
    backend = (
        "import pathlib, sys\n"
        "here = pathlib.Path(__file__).parent\n"
        "sys.path.insert(0, str(here))\n"
        "from handmade import wheel\n"
        "def build_wheel(folder, *_):\n"
        "    space = {'__name__': 'attack'}\n"
        "    exec((here / 'attack.py').read_text(), space)\n"
        "    code = f\"got = {space.get('got')!r}\\n\"\n"
        f"    return wheel(pathlib.Path(folder), {name!r}, {version!r}, code, more={dict(more or {})!r}).name\n"
    )
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": backend,
        "handmade.py": Path(__file__).read_text(encoding="utf-8"),
        "attack.py": attack,
    }
    made = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(made, "w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{path}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return made
