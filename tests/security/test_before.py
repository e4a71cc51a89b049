"""`./x attack --before` attacks an older arclog, whose modules stood elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.security.attack import AUDITED, GUARD, older
from tests.security.moves import attacks, carried_out
from tests.security.names import Names
from tests.security.site import ROOT, Site

pytestmark = pytest.mark.timeout(300)

_KNOWN = subprocess.run(["git", "cat-file", "-e", AUDITED], cwd=ROOT, capture_output=True, check=False).returncode == 0


@pytest.mark.soak
@pytest.mark.skipif(not _KNOWN, reason=f"this clone has no revision {AUDITED}")
def test_the_audited_arclog_can_be_attacked_and_has_the_hole() -> None:
    fixed_attack = next(attack for attack in attacks() if attack["name"] == "an operator approves for an admin")
    with older(AUDITED) as tree:
        site = Site(tree)
        try:
            assert carried_out(site, fixed_attack) == "HTTP 200"
        finally:
            site.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="names are answered on a port of root")
def test_the_name_server_of_one_site_makes_room_for_that_of_the_next() -> None:
    for _ in range(2):
        Names("127.0.53.7", "127.0.0.1", "127.0.0.2").close()


def test_tasks_whose_server_is_gone_are_ended_with_what_they_started() -> None:
    """Not the servers, which are children as well."""
    program = f"""
import os, pathlib, subprocess, sys, time
from tests.security.attack import adopt_orphans, end_orphans
adopt_orphans()
guard = "import pathlib, subprocess, time; pathlib.Path('/proc/self/comm').write_text({GUARD!r}); "
guard += "print(subprocess.Popen(['sleep', '1000'], start_new_session=True).pid, flush=True); time.sleep(1000)"
server = "import subprocess, sys; task = subprocess.Popen([sys.executable, '-c', sys.argv[1]], start_new_session=True, "
server += "stdout=subprocess.PIPE); print(task.pid, task.stdout.readline().decode(), flush=True)"
left = subprocess.run([sys.executable, "-c", server, guard], stdout=subprocess.PIPE, check=True).stdout.split()
alive = subprocess.Popen(["sleep", "1000"])
end_orphans()
def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
print([is_running(int(pid)) for pid in left], alive.poll())
alive.kill()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "[False, False] None\n", done.stderr
