"""Results in a bucket when its server, a process or somebody else does something to them."""

import asyncio
import os
import random
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import obstore
import pytest
import zstandard

from arclog.model.config.settings import Settings
from arclog.model.errors import ResultStoreAway, ResultUnavailable, SettingsError
from arclog.results.blobs.object import Keys, ObjectBlobs, Version, address_of, superseded, version_of
from arclog.results.store import BlobResults
from arclog.testing.conformance.results import TENANT, everything, listed, read, sha256_of, stored
from tests.integration.results.support import NOISE, ROWS, growth_mib, killed_writer
from tests.servers.s3 import S3Server, s3_server

#: above what goes in one request
LARGE = random.Random(5).randbytes(9_500_000)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SK")
    return s3.bucket(f"results-{os.urandom(4).hex()}")


def settings_of(s3: S3Server, bucket: str, **more: object) -> Settings:
    url = f"s3://{bucket}/some?endpoint={s3.endpoint}&region=us-east-1"
    return Settings({"results.url": url, **{name.replace("__", "."): value for name, value in more.items()}})


def made(s3: S3Server, bucket: str, **more: object) -> BlobResults:
    settings = settings_of(s3, bucket, **more)
    return BlobResults(ObjectBlobs(settings.text("results.url"), settings), settings)


@pytest.fixture
async def results(s3: S3Server, bucket: str) -> AsyncIterator[BlobResults]:
    store = made(s3, bucket)
    yield store
    await store.close()


def keys(s3: S3Server, bucket: str) -> list[str]:
    return re.findall("<Key>([^<]+)</Key>", s3.request("GET", f"/{bucket}?list-type=2").decode())


# -- the form -------------------------------------------------------------------------------------------------------------


async def test_small_content_is_one_object_that_any_zstd_reads(s3, bucket, results):
    sha256 = (await stored(results, NOISE)).sha256
    (key,) = keys(s3, bucket)
    assert re.fullmatch(rf"some/acme/{sha256[:2]}/{sha256}/[0-9a-f]{{16}}-[0-9a-f]{{16}}-\d+\.zst", key)
    packed = bytes(obstore.get(results.blobs.bucket.store, key).bytes())
    assert zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True).read() == NOISE


async def test_large_content_goes_up_in_parts_while_it_comes(s3, bucket, results):
    done = await stored(results, LARGE)
    reference, data = sorted(keys(s3, bucket), key=len, reverse=True)
    assert reference.endswith(f"-{done.stored_bytes}.ref")
    assert re.fullmatch(r"some/\.data/[0-9a-f]{16}\.zst", data)
    assert await read(results, done.sha256) == LARGE
    assert await read(results, done.sha256, 8_999_990, 9_000_010) == LARGE[8_999_990:9_000_010]
    stored_info = await results.find(TENANT, done.sha256)
    assert stored_info is not None
    assert [stored_info] == await everything(results)
    assert stored_info.stored_bytes == done.stored_bytes
    await stored(results, LARGE)
    assert len(keys(s3, bucket)) == 2
    assert await results.leftovers(1 << 62) == 0
    assert await results.remove(TENANT, done.sha256)
    assert keys(s3, bucket) == []
    assert s3.uploads(bucket) == 0


async def test_a_list_and_plain_bytes_stand_beside_each_other_until_the_list_comes_again(s3, bucket, results):
    sha256 = (await listed(results, ROWS)).sha256
    lines = await read(results, sha256)
    await stored(results, lines)
    await stored(results, lines)
    assert len(keys(s3, bucket)) == 2
    assert await results.items(TENANT, sha256, 7, 9) == ROWS[7:9]
    assert len(await everything(results)) == 1
    await listed(results, ROWS)
    assert [key.endswith("-list.zst") for key in keys(s3, bucket)] == [True]
    assert await read(results, sha256) == lines


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("referred", [True, False])
def test_a_version_is_read_from_its_key(listed, referred):
    version = Version(1_700_000_000_000_000, "0123456789abcdef", 42, listed, referred)
    assert version_of(version.name) == version
    key = Keys("a/b").of_version("../x", sha256_of(b"x"), version)
    assert Keys("a/b").parsed(key) == ("../x", sha256_of(b"x"), version)
    assert Keys("a").parsed(key) is None


def test_which_versions_a_later_one_stands_for():
    plain, rows, late_plain, late_rows = (
        Version(at, "0" * 16, 1, listed, False) for at, listed in ((1, False), (2, True), (3, False), (4, True))
    )
    assert superseded([plain, rows]) == [plain]
    assert superseded([rows, late_plain]) == []
    assert superseded([plain, late_plain]) == [plain]
    assert superseded([plain, rows, late_plain, late_rows]) == [plain, rows, late_plain]


async def test_who_stores_while_another_removes_what_they_looked_at_loses_nothing(s3, bucket, results):
    sha256 = (await stored(results, NOISE)).sha256
    old = await results.find(TENANT, sha256)
    assert old is not None
    looked = results.blobs.versions

    async def looking(tenant: str, name: str) -> list[Version]:
        """Somebody stores it again between the look and the removal."""
        versions: list[Version] = await looked(tenant, name)
        results.blobs.versions = looked
        await stored(results, NOISE)
        return versions

    results.blobs.versions = looking
    assert await results.remove(TENANT, sha256, old.stored_at)
    assert await read(results, sha256) == NOISE


# -- damage ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "body"),
    [("changed", NOISE), ("cut", NOISE), ("gone", NOISE), ("empty", NOISE), ("changed", LARGE), ("gone", LARGE)],
    ids=["changed", "cut", "gone", "empty", "large-changed", "large-gone"],
)
async def test_damage_is_noticed_and_healed_by_storing_again(s3, bucket, results, what, body):
    sha256 = (await stored(results, body)).sha256
    key = min(keys(s3, bucket), key=len)
    packed = bytes(obstore.get(results.blobs.bucket.store, key).bytes())
    if what == "gone":
        obstore.delete(results.blobs.bucket.store, key)
    else:
        middle = len(packed) // 2
        other = bytes([packed[middle] ^ 1])
        spoilt = {"changed": packed[:middle] + other + packed[middle + 1 :], "cut": packed[:-1000], "empty": b""}
        obstore.put(results.blobs.bucket.store, key, spoilt[what])
    with pytest.raises(ResultUnavailable, match=r"damaged|missing"):
        await read(results, sha256)
    await stored(results, body)
    assert await read(results, sha256) == body


async def test_objects_of_others_are_left_alone(s3, bucket, results):
    await stored(results, b"mine")
    odd = ["some/notes", "some/acme/notes", "some/.data/notes", "other/.data/0123456789abcdef.zst", "notes"]
    for key in odd:
        obstore.put(results.blobs.bucket.store, key, b"not ours")
    assert len(await everything(results)) == 1
    assert await results.leftovers(1 << 62) == 0
    assert set(odd) < set(keys(s3, bucket))


# -- writers that are gone --------------------------------------------------------------------------------------------------


async def test_an_abandoned_upload_is_taken_back(s3, bucket, results):
    writer = results.writer(TENANT)
    await writer.write(LARGE)
    await writer.abandon()
    assert s3.uploads(bucket) == 0
    assert keys(s3, bucket) == []


async def test_a_writer_that_died_between_data_and_reference(s3, bucket, results):
    await stored(results, LARGE)
    reference, _ = sorted(keys(s3, bucket), key=len, reverse=True)
    obstore.delete(results.blobs.bucket.store, reference)
    assert await everything(results) == []
    assert await results.leftovers(1) == 0  # too young
    assert await results.leftovers(1 << 62) == 1
    assert keys(s3, bucket) == []


async def test_a_killed_writer_leaves_nothing_to_read(s3, bucket, results):
    await killed_writer(settings_of(s3, bucket))
    assert await everything(results) == []
    assert keys(s3, bucket) == []


# -- servers that are away, and buckets that are not ours -------------------------------------------------------------------


async def test_a_server_that_is_away(bucket):
    with s3_server() as server:
        server.bucket(bucket)
        results = made(server, bucket, results__patience_s=0.2)
        sha256 = (await stored(results, b"kept")).sha256
        server.stop()
        for body in (NOISE, LARGE):
            with pytest.raises(ResultStoreAway, match=rf"s3://{bucket}/some cannot be reached"):
                await stored(results, body)
        with pytest.raises(ResultStoreAway):
            await read(results, sha256)
        with pytest.raises(ResultStoreAway):
            await everything(results)
        await results.close()


async def test_a_server_that_goes_while_content_comes(bucket):
    with s3_server() as server:
        server.bucket(bucket)
        results = made(server, bucket, results__patience_s=0.2)
        writer = results.writer(TENANT)
        await writer.write(LARGE)

        async def go_on() -> None:
            while True:
                await writer.write(LARGE)

        server.stop()
        with pytest.raises(ResultStoreAway):
            await asyncio.wait_for(go_on(), 60)
        await writer.abandon()
        await results.close()


async def test_a_bucket_that_is_not_there(s3, bucket):
    results = made(s3, "not-there")
    with pytest.raises(ResultUnavailable, match="there is no such bucket") as raised:
        await stored(results, b"x")
    assert not isinstance(raised.value, ResultStoreAway)
    with pytest.raises(ResultUnavailable, match="there is no such bucket"):
        await stored(results, LARGE)
    with pytest.raises(ResultUnavailable, match="there is no such bucket"):
        await everything(results)
    await results.close()


async def test_keys_that_may_not(bucket):
    with s3_server() as server:
        server.bucket(bucket)
        server.request("POST", "/moto-api/reset-auth", b"0")
        results = made(server, bucket)
        for body in (b"x", LARGE):
            with pytest.raises(ResultUnavailable, match=r"access denied.*ARCLOG_RESULTS_CREDENTIALS_FILE") as raised:
                await stored(results, body)
            assert not isinstance(raised.value, ResultStoreAway)
            assert "SK" not in str(raised.value).split()
        await results.close()


async def test_credentials_from_a_file(s3, bucket, tmp_path: Path, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    file = tmp_path / "keys"
    file.write_text("# for results\nAWS_ACCESS_KEY_ID=AK\n\nAWS_SECRET_ACCESS_KEY = s3cr3t\n")
    results = made(s3, bucket, results__credentials_file=str(file))
    assert await read(results, (await stored(results, b"x")).sha256) == b"x"
    await results.close()
    file.write_text("s3cr3t")
    with pytest.raises(SettingsError, match="line 1 is not NAME=value") as raised:
        made(s3, bucket, results__credentials_file=str(file))
    assert "s3cr3t" not in str(raised.value)
    with pytest.raises(SettingsError, match="cannot be read"):
        made(s3, bucket, results__credentials_file=str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    "url",
    [
        "s3://", "s3:///prefix", "s3://AK:s3cr3t@bucket", "s3://bucket?s3cr3t=1", "s3://bucket/../x", "s3://bucket/a//b",
        "gs://bucket?region=s3cr3t", "s3://bucket#s3cr3t",
    ],
)  # fmt: skip
def test_addresses_that_are_none_are_not_repeated(url):
    with pytest.raises(SettingsError, match="ARCLOG_RESULTS_URL") as raised:
        address_of(url)
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_other_clouds_are_reached_by_the_same_library(scheme, monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "someone")
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    results = ObjectBlobs(f"{scheme}://bucket/prefix")
    assert results.name == scheme
    assert results.keys.root == "prefix/"


async def test_memory_does_not_grow_with_the_content(s3, bucket):
    # An upload under way has a few pieces of 5 MiB at hand, more or fewer as the server takes them.
    # (This server takes the whole object into its hands for each part that is read.)
    assert await growth_mib(settings_of(s3, bucket), 24, 72, 10_000_000) < 32
