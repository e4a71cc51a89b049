import os
from collections.abc import Iterator

import pytest

from arclog.results.blobs.object import ObjectBlobs
from arclog.results.store import BlobResults
from arclog.testing.conformance.results import MakeResults, ResultsContract
from tests.servers.s3 import S3Server, s3_server


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


class TestObjectResults(ResultsContract):
    @pytest.fixture
    def make_results(self, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> MakeResults:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SK")
        bucket = s3.bucket(f"results-{os.urandom(4).hex()}")
        url = f"s3://{bucket}/some/where?endpoint={s3.endpoint}&region=us-east-1"
        return lambda settings: BlobResults(ObjectBlobs(url, settings), settings)
