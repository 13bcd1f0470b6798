"""Whatever arrives, only the connection it arrived on may suffer.

`HEADRACE_FUZZ_SEED` repeats a campaign; a seed is printed with every run.
"""

import asyncio
import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import psutil
import pytest
from campaign import (
    Campaign,
    Case,
    Report,
    Versions,
    advertised,
    bomb_cases,
    mutated_cases,
    watch,
)
from clients.raw import RawConnection
from frame_writer import FrameWriter
from kio.schema.api_versions.v0.request import ApiVersionsRequest
from mutations import framed, stuffed

from headrace.testing.broker import BrokerProcess

MIB = 1 << 20
# Groups that the fuzzer made, allocator slack and caches; a leak of a frame a case is far more.
RSS_GROWTH_BYTES = 48 * MIB
# Just under the largest request that is not a produce request.
STUFFED_BYTES = 4 * MIB - 1024
STUFFED_PEAK_BYTES = 256 * MIB
# Processor time, which other work on the machine does not change; while it passes, nobody else is served.
STUFFED_BUSY_S = 4.0
# The same during one round trip of a bystander: of the longest, and of the one in the middle.
LONGEST_BUSY_S = 2.0
TYPICAL_BUSY_S = 0.2

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
    await admin.create("bystander", headrace_storage="memory")  # so that it waits for no disk
    versions = await advertised(broker.bootstrap)
    idle = [await RawConnection.open(broker.bootstrap) for _ in range(20)]
    process = psutil.Process(broker.pid)
    warm = Campaign(broker.bootstrap, mutated_cases(seed + 1, versions))
    await warm.run(min(1000, mutated // 4))
    await _settled(broker)
    before = process.memory_info().rss
    report = await _attack(broker, seed, versions, mutated, bombs)
    await _settled(broker)
    grown = process.memory_info().rss - before
    print(
        f"{report.outcomes}, {report.connections} connections, RSS {before / MIB:.0f} {grown / MIB:+.1f} MiB"
    )
    assert grown < RSS_GROWTH_BYTES, f"{grown / MIB:.1f} MiB more than after warming up, seed {seed}"
    for connection in [admin, *idle]:
        assert (await connection.call(ApiVersionsRequest())).error_code == 0
    return report


async def _attack(
    broker: BrokerProcess, seed: int, versions: Versions, mutated: int, bombs: int | None
) -> Report:
    report, stop, busy_s = Report(), asyncio.Event(), partial(busy_seconds, broker.pid)
    async with asyncio.TaskGroup() as group:
        bystander = group.create_task(watch(broker.bootstrap, "bystander", report, stop, busy_s))
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
    assert not report.mismatched, (
        f"seed {seed}: answered with another correlation id: {report.mismatched[:5]}"
    )
    assert "Traceback" not in broker.output(), f"seed {seed}: {broker.output()[-4000:]}"
    assert report.outcomes["answered"] and report.outcomes["closed"], "a campaign must reach both"
    busy = sorted(report.bystander_busy_s)
    assert len(busy) > 10, "the bystander hardly got a turn"
    typical, longest = busy[len(busy) // 2], busy[-1]
    print(f"bystander: {len(busy)} round trips, the broker busy for {typical:.3f} s, {longest:.3f} s at most")
    assert longest < LONGEST_BUSY_S, f"seed {seed}"
    assert typical < TYPICAL_BUSY_S, f"seed {seed}"


@pytest.mark.timeout(900)
def test_malformed_frames_harm_nobody_but_their_sender(broker: BrokerProcess, seed: int):
    check(asyncio.run(campaign(broker, seed, mutated=3500, bombs=1500)), broker, seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_malformed_frames_harm_nobody_but_their_sender(broker: BrokerProcess, seed: int):
    check(asyncio.run(campaign(broker, seed, mutated=100_000, bombs=None)), broker, seed)


def stuffed_cases(versions: Versions) -> list[Case]:
    """For every API, every array of its newest version stuffed with as many items as a frame may hold."""
    cases = []
    for number, (api, (key, _, version)) in enumerate(sorted(versions.items())):
        request = FrameWriter(api, key, version, random.Random(0), items=1)
        for array in request.arrays:
            name = f"array at {array.length.position} of {api} v{version}"
            cases.append(Case(number=number, name=name, data=stuffed(request, array, STUFFED_BYTES)))
    return cases


async def send_all(broker: BrokerProcess, choose: Callable[[list[Case]], list[Case]]) -> Report:
    """Each stuffed case on a connection of its own, while a bystander goes on working."""
    report, stop, busy_s = Report(), asyncio.Event(), partial(busy_seconds, broker.pid)
    admin = await RawConnection.open(broker.bootstrap)
    await admin.create("bystander", headrace_storage="memory")
    await admin.create("fuzz")
    cases = choose(stuffed_cases(await advertised(broker.bootstrap)))
    async with asyncio.TaskGroup() as group:
        bystander = group.create_task(watch(broker.bootstrap, "bystander", report, stop, busy_s))
        for case in cases:
            before = busy_s()
            outcome = await _send_stuffed(broker, case)
            report.outcomes[outcome] += 1
            if outcome == "silent":
                report.silent.append(case)
            used = busy_s() - before
            assert used < STUFFED_BUSY_S, f"{case.name} kept the broker busy for {used:.1f} s"
        stop.set()
        await bystander
    return report


async def _send_stuffed(broker: BrokerProcess, case: Case) -> str:
    sender = await RawConnection.open(broker.bootstrap)
    try:
        await sender.send(case.data)
        await asyncio.wait_for(sender.receive(), 60)
        return "answered"
    except (asyncio.IncompleteReadError, ConnectionError):
        return "closed"
    except TimeoutError:
        return "parked" if case.may_park else "silent"
    finally:
        sender.abort()


def check_stuffed(broker: BrokerProcess, choose: Callable[[list[Case]], list[Case]]) -> None:
    before = peak_memory(broker.pid)
    report = asyncio.run(send_all(broker, choose))
    grown = peak_memory(broker.pid) - before
    longest = max(report.bystander_busy_s)
    print(f"{report.outcomes}, beside a bystander busy for {longest:.2f} s, peak {grown / MIB:+.0f} MiB")
    assert broker.is_alive()
    assert not report.silent, f"neither answered nor closed: {[case.name for case in report.silent[:5]]}"
    assert longest < STUFFED_BUSY_S
    assert "Traceback" not in broker.output(), broker.output()[-4000:]
    assert grown < STUFFED_PEAK_BYTES


def test_frames_stuffed_with_tiny_items_neither_block_nor_bloat(broker: BrokerProcess, seed: int):
    check_stuffed(broker, lambda cases: random.Random(seed).sample(cases, 12))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_frames_stuffed_in_every_array_neither_block_nor_bloat(broker: BrokerProcess):
    check_stuffed(broker, lambda cases: cases)


def test_every_advertised_version_answers_a_valid_request(broker: BrokerProcess):
    """Or the campaigns above would fuzz little more than the front door."""

    async def ask_all() -> list[str]:
        versions = await advertised(broker.bootstrap)
        admin = await RawConnection.open(broker.bootstrap)
        await admin.create("fuzz")
        unanswered = []
        for api, (key, lowest, highest) in versions.items():
            for version in range(lowest, highest + 1):
                for items in (0, 1, 2):
                    request = FrameWriter(api, key, version, random.Random(items), items=items)
                    case = Case(number=0, name=f"{api} v{version}", data=framed(bytes(request.data)))
                    if await _send_stuffed(broker, case) != "answered":
                        unanswered.append(f"{case.name} with {items} items")
        return unanswered

    assert asyncio.run(ask_all()) == []


def busy_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def peak_memory(pid: int) -> int:
    """The most memory the process has had so far, as the kernel counts it."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        pytest.skip("the peak of another process's memory is known on Linux only")
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
