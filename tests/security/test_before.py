"""`./x attack --before` attacks an older arclog, whose modules stood elsewhere."""

from __future__ import annotations

import subprocess

import pytest

from tests.security.attack import AUDITED, older
from tests.security.moves import attacks, carried_out
from tests.security.site import ROOT, Site

pytestmark = pytest.mark.timeout(300)

_KNOWN = subprocess.run(["git", "cat-file", "-e", AUDITED], cwd=ROOT, capture_output=True, check=False).returncode == 0


@pytest.mark.soak
@pytest.mark.skipif(not _KNOWN, reason=f"this clone has no revision {AUDITED}")
def test_the_audited_arclog_can_be_attacked_and_has_the_hole() -> None:
    known = next(attack for attack in attacks() if attack["name"] == "an operator approves for an admin")
    with older(AUDITED) as tree:
        site = Site(tree)
        try:
            assert carried_out(site, known) == "HTTP 200"
        finally:
            site.close()
