import pytest

from arclog.stores.memory import MemoryStore
from arclog.testing.conformance.store import MakeStore, StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        return lambda clock, settings: MemoryStore(clock=clock, settings=settings)
