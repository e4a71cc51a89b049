"""The rules of `arclog.ports.control` as tests. Every control runs them unchanged:

    class TestMyControl(ControlContract):
        @pytest.fixture
        async def ground(self, tmp_path):
            async with ...:
                yield Ground(control, api, lapse)

Needs pytest and pytest-asyncio (`asyncio_mode = "auto"`).
"""

from arclog.testing.conformance.control.base import Ground
from arclog.testing.conformance.control.claiming import ClaimRules
from arclog.testing.conformance.control.reporting import ReportRules

__all__ = ["ControlContract", "Ground"]


class ControlContract(ClaimRules, ReportRules):
    """All rules. A subclass gives the fixture `ground`."""
