"""The attacks of `hostile.py` in the build of a package of `requirements`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

#: Follows the code of `hostile.py` and a value `at` in the build of a package. In a process of its own, since some attacks change a process, and its mounts, for good.
_END = """
import json, tempfile
os.environ["ARCLOG_SCRATCH"] = tempfile.gettempdir()
at["own"] = [os.getpid()]  # and the others of its sandbox
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{name}/comm") as file:
            if file.read().strip() in ("uv", "arclog-relay"):
                at["own"].append(int(name))
    except OSError:
        continue
readable, writable = os.pipe()
if os.fork() == 0:
    os.close(readable)
    if _libc.unshare(NEWNS) == 0:
        _libc.mount(None, b"/", None, 0x4000 | 0x40000, None)
    with open(writable, "w") as file:
        file.write(json.dumps(main(at)))
    os._exit(0)
os.close(writable)
with open(readable) as file:
    got = json.loads(file.read())
"""


def hostile_build(at: dict[str, Any]) -> str:
    """The code of a build that leaves in `got` what each attack got."""
    code = Path(__file__).with_name("hostile.py").read_text()
    # Its own folders lie in the home that it sees. Confined, that is not the real one; else it would be the end of the site.
    return f"{code}\nBY_PROMISE['files'].remove(home_moved_away)\nat = {at!r}\n{_END}"
