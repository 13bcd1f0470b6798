"""Whatever arrives, only the connection it arrived on may suffer.

`HEADRACE_FUZZ_SEED` repeats a campaign; a seed is printed with every run.
"""

import asyncio
import os
import random
import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import psutil
import pytest
from campaign import Campaign, Report, Versions, advertised, bomb_cases, mutated_cases, watch
from clients.raw import RawConnection
from frame_writer import uvarint
from kio.schema.api_versions.v0.request import ApiVersionsRequest

from headrace.testing.broker import BrokerProcess

MIB = 1 << 20
# Groups that the fuzzer made, allocator slack and the interpreter's caches; a leak of a frame a case is far more.
RSS_GROWTH_BYTES = 48 * MIB
# A loaded machine of two cores; a blocked event loop shows as tens of seconds.
SLOWEST_BYSTANDER_S = 5.0
TYPICAL_BYSTANDER_S = 0.25

pytestmark = pytest.mark.xdist_group("fuzz")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, auto_create_topics=False) as started:
        yield started


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("HEADRACE_FUZZ_SEED", random.SystemRandom().randrange(2**32)))
    print(f"HEADRACE_FUZZ_SEED={chosen}")
    return chosen


async def campaign(broker: BrokerProcess, seed: int, mutated: int, bombs: int | None) -> Report:
    """Warm up, send everything, and check what must hold for those who did nothing wrong."""
    admin = await RawConnection.open(broker.bootstrap)
    await admin.create("fuzz")
    await admin.create("bystander")
    versions = await advertised(broker.bootstrap)
    idle = [await RawConnection.open(broker.bootstrap) for _ in range(20)]
    process = psutil.Process(broker.pid)
    warm = Campaign(broker.bootstrap, mutated_cases(seed + 1, versions))
    await warm.run(min(1000, mutated // 4))
    before = process.memory_info().rss
    report = await _attack(broker, seed, versions, mutated, bombs)
    await _settled(broker)
    grown = process.memory_info().rss - before
    print(f"{report.outcomes}, {report.connections} connections, RSS {before / MIB:.0f} {grown / MIB:+.1f} MiB")
    assert grown < RSS_GROWTH_BYTES, f"{grown / MIB:.1f} MiB more than after warming up, seed {seed}"
    for connection in [admin, *idle]:
        assert (await connection.call(ApiVersionsRequest())).error_code == 0
    return report


async def _attack(
    broker: BrokerProcess, seed: int, versions: Versions, mutated: int, bombs: int | None
) -> Report:
    report, stop = Report(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        bystander = group.create_task(watch(broker.bootstrap, "bystander", report, stop))
        for cases in (islice(mutated_cases(seed, versions), mutated), chosen_bombs(seed, versions, bombs)):
            attack = Campaign(broker.bootstrap, iter(cases))
            attack.report = report
            await attack.run(10**9)
        stop.set()
        await bystander
    return report


def chosen_bombs(seed: int, versions: Versions, count: int | None) -> list:
    cases = list(bomb_cases(versions))
    return cases if count is None else random.Random(seed).sample(cases, min(count, len(cases)))


async def _settled(broker: BrokerProcess) -> None:
    """What the campaign's connections held is given back once the broker has noticed that they are gone."""
    connection = await RawConnection.open(broker.bootstrap)
    for _ in range(20):
        await connection.call(ApiVersionsRequest())
        await asyncio.sleep(0.02)
    connection.close()


def check(report: Report, broker: BrokerProcess, seed: int) -> None:
    assert broker.is_alive(), f"seed {seed}: the broker ended\n{broker.output()[-4000:]}"
    assert not report.silent, f"seed {seed}: neither answered nor closed: {report.silent[:5]}"
    assert not report.mismatched, f"seed {seed}: answered with another correlation id: {report.mismatched[:5]}"
    assert "Traceback" not in broker.output(), f"seed {seed}: {broker.output()[-4000:]}"
    assert report.outcomes["answered"] and report.outcomes["closed"], "a campaign must reach both"
    latencies = sorted(report.bystander_s)
    assert len(latencies) > 10, "the bystander hardly got a turn"
    typical, slowest = latencies[len(latencies) // 2], latencies[-1]
    print(f"bystander: {len(latencies)} round trips, median {typical * 1e3:.1f} ms, slowest {slowest * 1e3:.0f} ms")
    assert slowest < SLOWEST_BYSTANDER_S, f"seed {seed}"
    assert typical < TYPICAL_BYSTANDER_S, f"seed {seed}"


def test_malformed_frames_harm_nobody_but_their_sender(broker: BrokerProcess, seed: int):
    check(asyncio.run(campaign(broker, seed, mutated=3500, bombs=1500)), broker, seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_malformed_frames_harm_nobody_but_their_sender(broker: BrokerProcess, seed: int):
    check(asyncio.run(campaign(broker, seed, mutated=100_000, bombs=None)), broker, seed)


def tiny_items(api: str, versions: Versions, size: int) -> bytes:
    """A well-formed frame of `size` bytes that is one array of empty texts: a million items a megabyte."""
    key, _, version = versions[api]
    head = struct.pack(">hhih", key, version, 7, -1) + b"\x00"
    count = size - 64
    return struct.pack(">i", len(head) + len(uvarint(count + 1)) + count + 1) + (
        head + uvarint(count + 1) + b"\x01" * count + b"\x00"
    )


@pytest.mark.parametrize("api", ["describe_groups", "delete_groups", "delete_topics", "metadata", "list_groups"])
def test_a_frame_stuffed_with_tiny_items_neither_blocks_nor_bloats(broker: BrokerProcess, api: str):
    async def attack() -> Report:
        report, stop = Report(), asyncio.Event()
        versions = await advertised(broker.bootstrap)
        admin = await RawConnection.open(broker.bootstrap)
        await admin.create("bystander")
        async with asyncio.TaskGroup() as group:
            bystander = group.create_task(watch(broker.bootstrap, "bystander", report, stop))
            for _ in range(3):
                sender = await RawConnection.open(broker.bootstrap)
                await sender.send(tiny_items(api, versions, 3 * MIB))
                try:
                    await asyncio.wait_for(sender.receive(), 60)
                except (asyncio.IncompleteReadError, ConnectionError):
                    report.outcomes["closed"] += 1
                sender.abort()
            stop.set()
            await bystander
        return report

    before = psutil.Process(broker.pid).memory_info().rss
    peak = PeakMemory(broker.pid)
    with peak:
        report = asyncio.run(attack())
    print(f"{api}: {report.outcomes}, slowest bystander {max(report.bystander_s):.2f} s, peak {peak.bytes / MIB:.0f} MiB")
    assert broker.is_alive()
    assert max(report.bystander_s) < SLOWEST_BYSTANDER_S
    assert peak.bytes - before < 256 * MIB


class PeakMemory:
    """The most memory the process has had so far, as the kernel counts it."""

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self.bytes = 0

    def __enter__(self) -> "PeakMemory":
        if not self._status.exists():
            pytest.skip("the peak of another process's memory is known on Linux only")
        return self

    def __exit__(self, *_: object) -> None:
        (line,) = [line for line in self._status.read_text().splitlines() if line.startswith("VmHWM")]
        self.bytes = int(line.split()[1]) * 1024
