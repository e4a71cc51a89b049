import os
from pathlib import Path

import pytest

from arclog.results.blobs.files import FileBlobs
from arclog.results.store import BlobResults
from arclog.testing.conformance.results import MakeResults, ResultsContract


class TestFileResults(ResultsContract):
    @pytest.fixture
    def make_results(self, tmp_path: Path) -> MakeResults:
        self.root = tmp_path / "results"
        return lambda settings: BlobResults(FileBlobs(self.root), settings)

    async def age(self, results, sha256: str) -> None:
        (file,) = self.root.glob(f"*/*/{sha256}.zst")
        os.utime(file, (1_000_000, 1_000_000))
