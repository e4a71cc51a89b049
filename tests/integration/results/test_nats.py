"""Results in NATS when its server, a process or somebody else does something to them."""

import asyncio
import io
import os
from collections.abc import AsyncIterator

import nats
import pytest
import zstandard

from arclog.model.config.settings import Settings
from arclog.model.errors import ResultStoreAway, ResultUnavailable, SettingsError
from arclog.ports.results import Results
from arclog.results.blobs.nats.bucket import object_name
from arclog.testing.conformance.results import TENANT, everything, listed, read, stored
from arclog.wiring.backends import choose_results
from tests.integration.results.support import LONG, NOISE, ROWS, growth_mib, killed_writer, read_around, stored_around
from tests.servers.nats import NatsServer, running_nats


@pytest.fixture
def settings(nats_server: NatsServer) -> Settings:
    return Settings({"bus.url": nats_server.url, "results.url": "nats", "results.bucket": f"r-{os.urandom(4).hex()}"})


@pytest.fixture
async def results(settings: Settings) -> AsyncIterator[Results]:
    made = choose_results(settings)
    yield made
    await made.close()


@pytest.fixture
async def stream(settings: Settings) -> AsyncIterator[nats.js.JetStreamContext]:
    """Somebody else's connection."""
    client = await nats.connect(settings.text("bus.url"))
    yield client.jetstream()
    await client.close()


def stream_of(settings: Settings) -> str:
    return f"OBJ_{settings.text('results.bucket')}"


async def messages(stream, settings) -> int:
    count: int = (await stream.stream_info(stream_of(settings))).state.messages
    return count


# -- the form -------------------------------------------------------------------------------------------------------------


async def test_any_client_and_any_zstd_give_the_content_back(results, settings, stream):
    plain, rows = (await stored(results, NOISE)).sha256, (await listed(results, ROWS)).sha256
    bucket = await stream.object_store(settings.text("results.bucket"))
    for sha256, body in ((plain, NOISE), (rows, await read(results, rows))):
        stored_object = await bucket.get(object_name(TENANT, sha256))
        reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(stored_object.data), read_across_frames=True)
        assert reader.read() == body
        assert stored_object.info.size == len(stored_object.data)


async def test_what_is_removed_leaves_no_message(results, settings, stream):
    sha256 = (await stored(results, NOISE)).sha256
    await stored(results, NOISE)
    assert await messages(stream, settings) < 2 * len(NOISE) // (128 * 1024)
    assert await results.remove(TENANT, sha256)
    assert await messages(stream, settings) == 0


async def test_objects_of_others_are_left_alone(results, settings, stream):
    await stored(results, b"mine")
    bucket = await stream.object_store(settings.text("results.bucket"))
    await bucket.put("acme/notes", b"not ours")
    await bucket.put("notes", b"not ours")
    assert len(await everything(results)) == 1
    assert await results.leftovers(1 << 62) == 0
    assert (await bucket.get("notes")).data == b"not ours"


# -- damage ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["first", "last"])
async def test_a_chunk_that_is_gone_is_noticed_and_healed_by_storing_again(results, settings, stream, which):
    sha256 = (await stored(results, NOISE)).sha256
    state = (await stream.stream_info(stream_of(settings))).state
    # The last message tells of the object; the one before is its last chunk.
    await stream.delete_msg(stream_of(settings), state.first_seq if which == "first" else state.last_seq - 1)
    with pytest.raises(ResultUnavailable, match="damaged"):
        await read(results, sha256)
    assert (await stored(results, NOISE)).sha256 == sha256
    assert await read(results, sha256) == NOISE


async def test_another_object_under_its_name_is_noticed(results, settings, stream):
    sha256 = (await stored(results, NOISE)).sha256
    bucket = await stream.object_store(settings.text("results.bucket"))
    await bucket.put(object_name(TENANT, sha256), b"something else")
    with pytest.raises(ResultUnavailable, match=r"damaged.*not stored by arclog"):
        await read(results, sha256)
    await stored(results, NOISE)
    assert await read(results, sha256) == NOISE


async def test_who_stores_and_who_removes_the_same_end_with_all_or_nothing(results):
    sha256 = (await stored(results, NOISE)).sha256

    async def remove() -> None:
        stored = await results.find(TENANT, sha256)
        if stored is not None:
            await results.remove(TENANT, sha256, stored.stored_at)

    for _ in range(4):
        await asyncio.gather(stored(results, NOISE), remove(), remove())
        if await results.find(TENANT, sha256) is not None:
            assert await read(results, sha256) == NOISE
    await results.leftovers(1 << 62)
    await stored(results, NOISE)
    assert await read(results, sha256) == NOISE


# -- writers that are gone --------------------------------------------------------------------------------------------------


async def test_a_killed_writer_leaves_nothing_to_read(results, settings, stream):
    await killed_writer(settings)
    assert await everything(results) == []
    assert await results.leftovers(1) == 0  # too young
    assert await results.leftovers(1 << 62) == 1
    assert await messages(stream, settings) == 0


async def test_a_writer_whose_chunks_were_swept_says_so(results):
    async def sweep() -> None:
        while not await results.leftovers(1 << 62):  # noqa: ASYNC110 - its first part is on its way
            await asyncio.sleep(0)

    with pytest.raises(ResultUnavailable, match=r"results\.orphan_grace_s"):
        await stored_around(results, sweep)
    assert await everything(results) == []


# -- servers that are away, full, or forbid it ------------------------------------------------------------------------------


async def test_a_server_that_is_killed_and_comes_back_costs_time_only():
    with running_nats() as server:
        results = choose_results(Settings({"results.url": "nats", "bus.url": server.url, "results.patience_s": 60}))

        async def restart() -> None:
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)

        done = await stored_around(results, restart)
        assert await read_around(results, done.sha256, restart) == LONG
        await results.close()


async def test_a_server_that_stays_away_or_comes_back_empty():
    with running_nats() as server:
        url = server.url.replace("//", "//someone:s3cr3t@")
        results = choose_results(Settings({"results.url": "nats", "bus.url": url, "results.patience_s": 0.2}))
        sha256 = (await stored(results, b"kept")).sha256

        async def kill() -> None:
            await asyncio.to_thread(server.kill)

        with pytest.raises(ResultStoreAway, match="cannot be reached") as raised:
            await stored_around(results, kill)
        assert f"NATS nats://127.0.0.1:{server.port}" in str(raised.value)
        assert "s3cr3t" not in str(raised.value)
        with pytest.raises(ResultStoreAway):
            await read(results, sha256)
        await results.close()
        results = choose_results(Settings({"results.url": "nats", "bus.url": url, "results.patience_s": 30}))
        await asyncio.to_thread(server.start)
        assert await read(results, sha256) == b"kept"

        async def wipe() -> None:
            await asyncio.to_thread(server.wipe)
            await asyncio.to_thread(server.start)

        with pytest.raises(ResultUnavailable, match="bucket arclog-results is gone"):
            await stored_around(results, wipe)
        with pytest.raises(ResultUnavailable, match="missing"):
            await read(results, sha256)
        assert await everything(results) == []
        assert await read(results, (await stored(results, NOISE)).sha256) == NOISE
        await results.close()


async def test_a_server_that_was_never_there():
    results = choose_results(
        Settings({"results.url": "nats", "bus.url": "nats://someone:s3cr3t@127.0.0.1:1", "results.patience_s": 0.2})
    )
    with pytest.raises(ResultStoreAway, match="cannot be reached") as raised:
        await stored(results, b"x")
    assert "s3cr3t" not in str(raised.value)
    await results.close()


async def test_a_full_bucket_keeps_nothing_of_it(settings):
    results = choose_results(settings.replaced(results__bucket_max_bytes=2_000_000))
    kept = (await stored(results, NOISE[:500_000])).sha256
    with pytest.raises(ResultUnavailable, match=r"no room.*arclog gc"):
        await stored(results, NOISE)
    assert [result.sha256 for result in await everything(results)] == [kept]
    assert await results.leftovers(1 << 62) == 0
    assert await read(results, kept) == NOISE[:500_000]
    await results.close()


async def test_credentials():
    config = 'authorization { users = [{user: "someone", password: "s3cr3t"}] }\n'
    with running_nats(config=config) as server:
        right, wrong = (server.url.replace("//", f"//someone:{word}@") for word in ("s3cr3t", "wr0ng"))
        results = choose_results(Settings({"results.url": "nats", "bus.url": wrong}))
        with pytest.raises(ResultUnavailable, match="rejects the login") as raised:
            await stored(results, b"x")
        assert not isinstance(raised.value, ResultStoreAway)
        assert "wr0ng" not in str(raised.value)
        await results.close()
        results = choose_results(Settings({"results.url": "nats", "bus.url": right}))
        assert await read(results, (await stored(results, b"x")).sha256) == b"x"
        await results.close()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "ARCLOG_BUS_URL"),
        ({"bus.url": "nats://h", "results.bucket": "a.b"}, "ARCLOG_RESULTS_BUCKET"),
    ],
)
async def test_settings_that_cannot_be(values, said):
    with pytest.raises(SettingsError, match=said):
        choose_results(Settings({"results.url": "nats", **values}))


def test_certificates_that_are_not_there():
    values = {"results.url": "nats", "bus.url": "tls://127.0.0.1:1", "bus.ca_file": "/nowhere.pem"}
    with pytest.raises(SettingsError, match="ARCLOG_BUS_CA_FILE"):
        choose_results(Settings(values))


async def test_memory_does_not_grow_with_the_content(settings):
    assert await growth_mib(settings) < 32
