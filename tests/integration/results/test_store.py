"""Which of two forms of the same bytes is kept when others store and remove it meanwhile. Every blob store is asked in the same way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from arclog.model.errors import ResultUnavailable
from arclog.results.blobs.files import FileBlobs, FileUpload
from arclog.results.store import BlobResults
from arclog.testing.conformance.results import TENANT, everything, listed, read, stored

ROWS = [{"id": number} for number in range(50)]


@pytest.fixture
async def results(tmp_path: Path) -> AsyncIterator[BlobResults]:
    made = BlobResults(FileBlobs(tmp_path))
    yield made
    await made.close()


@pytest.fixture
def before_renewing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Awaitable[object]]], None]:
    """Something happens, once, after a list was looked at and before it is kept."""
    renew = FileUpload.renew

    def happens(meanwhile: Callable[[], Awaitable[object]]) -> None:
        async def renewing(upload: FileUpload, sha256: str) -> bool:
            monkeypatch.setattr(FileUpload, "renew", renew)
            await meanwhile()
            return await renew(upload, sha256)

        monkeypatch.setattr(FileUpload, "renew", renewing)

    return happens


async def test_a_list_that_is_removed_meanwhile_is_stored_as_plain_bytes(results, before_renewing):
    sha256 = (await listed(results, ROWS)).sha256
    lines = await read(results, sha256)
    before_renewing(lambda: results.remove(TENANT, sha256))
    assert (await stored(results, lines)).sha256 == sha256
    assert await read(results, sha256) == lines
    with pytest.raises(ResultUnavailable, match="not a list"):
        await results.items(TENANT, sha256, 0, 1)


async def test_a_list_that_is_stored_again_meanwhile_is_kept(results, before_renewing, tmp_path):
    sha256 = (await listed(results, ROWS)).sha256
    lines = await read(results, sha256)
    before_renewing(lambda: listed(results, ROWS))
    await stored(results, lines)
    assert await results.items(TENANT, sha256, 3, 5) == ROWS[3:5]
    assert len(await everything(results)) == 1
    assert list((tmp_path / ".new").iterdir()) == []


async def test_a_name_that_is_no_hash_is_nothing(results):
    assert await results.find(TENANT, "../x") is None
    assert not await results.remove(TENANT, "../x")
    with pytest.raises(ResultUnavailable, match="missing"):
        await read(results, "../x")


def test_compression_is_imported_with_the_first_result(tmp_path):
    code = (
        "import sys\n"
        "from arclog.results.blobs.files import FileBlobs\n"
        "from arclog.results.store import BlobResults\n"
        "results = BlobResults(FileBlobs(sys.argv[1]))\n"
        "assert 'zstandard' not in sys.modules\n"
        "results.writer('t')\n"
        "assert 'zstandard' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
