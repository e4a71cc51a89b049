"""The rules of `arclog.ports.storage.store` as tests. Every store runs them unchanged:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def make_store(self, tmp_path):
            return lambda clock, settings: MyStore(tmp_path / "db", clock=clock, settings=settings)

Needs pytest and pytest-asyncio (`asyncio_mode = "auto"`), and hypothesis for payloads.
"""

from arclog.testing.conformance.store.access import AccessRules
from arclog.testing.conformance.store.base import MakeStore
from arclog.testing.conformance.store.commands import CommandRules
from arclog.testing.conformance.store.control import ControlRules
from arclog.testing.conformance.store.duties import DutyRules
from arclog.testing.conformance.store.groups import GroupRules
from arclog.testing.conformance.store.ingested import IngestedRules
from arclog.testing.conformance.store.lists import ListRules
from arclog.testing.conformance.store.log import LogRules
from arclog.testing.conformance.store.operations import OperationRules
from arclog.testing.conformance.store.payloads import PayloadRules
from arclog.testing.conformance.store.pools import PoolRules
from arclog.testing.conformance.store.races import RaceRules
from arclog.testing.conformance.store.reading import ReadingRules
from arclog.testing.conformance.store.retention import RetentionRules
from arclog.testing.conformance.store.searching import SearchRules
from arclog.testing.conformance.store.stored import StoredRules
from arclog.testing.conformance.store.task_logs import TaskLogRules
from arclog.testing.conformance.store.timers import OddsRules

__all__ = ["MakeStore", "StoreContract"]


class StoreContract(
    LogRules,
    GroupRules,
    ReadingRules,
    SearchRules,
    RaceRules,
    CommandRules,
    ControlRules,
    OddsRules,
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
