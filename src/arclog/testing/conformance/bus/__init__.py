"""The rules of `ports.bus`, for every bus.

    class TestMyBus(BusContract):
        @pytest.fixture
        def network(self) -> Network: ...

A network is what buses meet on; one that tests can take away and bring back says so (`can_be_lost`).
"""

from arclog.testing.conformance.bus.base import Network
from arclog.testing.conformance.bus.losing import LossRules
from arclog.testing.conformance.bus.telling import TellingRules


class BusContract(TellingRules, LossRules):
    """All rules."""


__all__ = ["BusContract", "Network"]
