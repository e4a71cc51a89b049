"""The rules of `arclog.ports.storage.store` as tests. Every store runs them unchanged:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def make_store(self, tmp_path):
            return lambda clock, settings: MyStore(tmp_path / "db", clock=clock, settings=settings)

Needs pytest and pytest-asyncio (`asyncio_mode = "auto"`), and hypothesis for payloads.
"""

from arclog.testing.conformance.store.administration import AccessRules, DutyRules, OperationRules
from arclog.testing.conformance.store.base import MakeStore
from arclog.testing.conformance.store.commands import CommandRules, ControlRules
from arclog.testing.conformance.store.concurrency import GroupRules, RaceRules
from arclog.testing.conformance.store.executions import ListRules, RetentionRules, StoredRules
from arclog.testing.conformance.store.log import IngestedRules, LogRules, PayloadRules
from arclog.testing.conformance.store.pools import PoolRules
from arclog.testing.conformance.store.reading import ReadingRules
from arclog.testing.conformance.store.searching import SearchRules, TaskLogRules
from arclog.testing.conformance.store.timers import TimerRules

__all__ = ["MakeStore", "StoreContract"]


class StoreContract(
    LogRules,
    GroupRules,
    ReadingRules,
    SearchRules,
    RaceRules,
    CommandRules,
    ControlRules,
    TimerRules,
    OperationRules,
    TaskLogRules,
    PayloadRules,
    StoredRules,
    AccessRules,
    IngestedRules,
    DutyRules,
    RetentionRules,
    PoolRules,
    ListRules,
):
    """All rules. A subclass gives the fixture `make_store`."""
