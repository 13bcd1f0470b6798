"""Many connections at once, and clients that read slowly, or send slowly, or not at all."""

import asyncio
import os
import resource
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from clients.raw import RawConnection, fetch_request, frame_of, produce_request
from kio.schema.api_versions.v0.request import ApiVersionsRequest
from kio.schema.fetch.v12.request import FetchRequest

from headrace.testing.broker import BrokerProcess

IDLE, BUSY, ROUNDS = 2000, 100, 20
ROUND_TRIPS = 100
ANSWER_MIB = 47  # of a whole answer with history
MIB = 1 << 20

pytestmark = [pytest.mark.xdist_group("connections"), pytest.mark.timeout(180)]


@pytest.fixture
def files() -> Iterator[None]:
    """Room for all sockets of this process, inherited by the broker."""
    needed = 2 * (IDLE + BUSY) + 500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"{needed} open files are needed and the hard limit is {hard} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def busy_client(bootstrap: str, number: int) -> int:
    """Writes and reads its own partition in turns; how many records it has read back."""
    connection = await RawConnection.open(bootstrap)
    found = 0
    for turn in range(ROUNDS):
        values = [f"{number} {turn} {n}".encode() for n in range(5)]
        offset = await connection.produce("busy", values, partition=number)
        assert offset == turn * 5
        read = await connection.fetch("busy", offset, partition=number)
        assert [value for _, value in read] == values
        found += len(read)
    connection.close()
    return found


@pytest.mark.usefixtures("files")
def test_two_thousand_idle_and_a_hundred_busy_connections_are_served_at_once(tmp_path: Path):
    async def run(broker: BrokerProcess) -> None:
        admin = await RawConnection.open(broker.bootstrap)
        await admin.create("busy", BUSY)
        before = psutil.Process(broker.pid).memory_info().rss
        idle = [await RawConnection.open(broker.bootstrap) for _ in range(IDLE)]
        began = time.monotonic()
        found = await asyncio.gather(*(busy_client(broker.bootstrap, n) for n in range(BUSY)))
        seconds = time.monotonic() - began
        grown = psutil.Process(broker.pid).memory_info().rss - before
        assert found == [ROUNDS * 5] * BUSY
        for connection in idle:
            assert (await asyncio.wait_for(connection.call(ApiVersionsRequest()), 30)).error_code == 0
        print(f"{BUSY * ROUNDS / seconds:.0f} round trips/s, {grown / IDLE / 1024:.1f} KiB a connection")
        assert grown < 128 * MIB
        for connection in [admin, *idle]:
            connection.abort()

    with BrokerProcess(tmp_path) as broker:
        asyncio.run(run(broker))


async def round_trips(connection: RawConnection, count: int) -> None:
    """Writes and reads as one healthy client."""
    for _ in range(count):
        offset = await asyncio.wait_for(connection.produce("healthy", [os.urandom(100_000)]), 60)
        assert len(await asyncio.wait_for(connection.fetch("healthy", offset), 60)) == 1


async def with_and_without(broker: BrokerProcess, hinder: "Hindrance") -> None:
    """A healthy client's round trips and the broker's memory, before and while others misbehave.

    What those cost who stall is the broker's processor time, which other work on the machine
    does not lengthen. One whom it serves all the time is worth his; that others are served
    meanwhile is `broker/test_turns.py`.
    """
    healthy = await RawConnection.open(broker.bootstrap)
    await healthy.create("healthy")
    process = psutil.Process(broker.pid)

    async def cost_s() -> float:
        await round_trips(healthy, 10)  # warm up
        before = process.cpu_times()
        await round_trips(healthy, ROUND_TRIPS)
        after = process.cpu_times()
        return (after.user + after.system) - (before.user + before.system)

    alone_s, before = await cost_s(), process.memory_info().rss
    offenders = await hinder(broker.bootstrap)
    beside_s = await cost_s()
    while hinder.served_mib() < hinder.to_be_served_mib:
        await round_trips(healthy, 1)
    grown = process.memory_info().rss - before
    for connection in offenders:
        connection.abort()
    await wait_dismissed(healthy)
    print(
        f"{ROUND_TRIPS} round trips: {alone_s:.2f} s of the broker's processor alone, {beside_s:.2f} s "
        f"beside {len(offenders)} offenders, {grown / MIB:+.1f} MiB"
    )
    assert hinder.to_be_served_mib or beside_s < 4 * alone_s + 0.1, "others pay for it"
    assert grown < 96 * MIB, f"{grown / MIB:.1f} MiB more"


async def wait_dismissed(healthy: RawConnection) -> None:
    assert (await asyncio.wait_for(healthy.call(ApiVersionsRequest()), 30)).error_code == 0


class Hindrance:
    """Opens clients that misbehave and stay."""

    to_be_served_mib = 0  # or it was no hindrance

    def served_mib(self) -> int:
        """What was served to them."""
        return 0

    async def __call__(self, bootstrap: str) -> "list[RawConnection] | list[Replaying]":
        raise NotImplementedError


async def fill(bootstrap: str, topic: str) -> None:
    """Makes a topic of 50 MB."""
    filler = await RawConnection.open(bootstrap)
    await filler.create(topic)
    for _ in range(50):
        await filler.produce(topic, [os.urandom(1_000_000)])
    filler.close()


def large_fetch(topic: str) -> FetchRequest:
    """One that insists on so much that the broker's own limit of an answer does not hold."""
    return fetch_request(topic, 0, min_bytes=50_000_000, max_bytes=50_000_000)


class SilentReaders(Hindrance):
    """Ask for large answers, several at a time, and never read one."""

    async def __call__(self, bootstrap: str) -> list[RawConnection]:
        await fill(bootstrap, "large")
        readers = [await RawConnection.open(bootstrap) for _ in range(40)]
        for reader in readers:
            reader.reader._limit = 1  # asyncio itself would otherwise read ahead for us
            for _ in range(4):
                await reader.send(frame_of(large_fetch("large")))
        return readers


class HalfSenders(Hindrance):
    """Announce a large produce request, send some of it and stall."""

    announced_bytes = 10 * MIB

    async def __call__(self, bootstrap: str) -> list[RawConnection]:
        frame = frame_of(produce_request("healthy", [os.urandom(900_000)]))
        senders = [await RawConnection.open(bootstrap) for _ in range(60)]
        for sender in senders:
            # The announced length may be a lie; what is reserved for it must not starve the honest.
            sender.writer.write(struct.pack(">i", self.announced_bytes) + frame[4 : len(frame) // 2])
        return senders


class BoastfulHalfSenders(HalfSenders):
    """The same with the largest request there may be, which is more than the whole budget for requests."""

    announced_bytes = 99 * MIB


REPLAY = """
import socket, sys
connection, request = socket.create_connection(("127.0.0.1", int(sys.argv[1]))), bytes.fromhex(sys.argv[2])
room, fresh = bytearray(1 << 20), 0
while True:
    connection.sendall(request)
    left = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    while left:
        came = connection.recv_into(room, min(left, len(room)))
        if not came:
            sys.exit()  # the broker has ended
        left -= came
        fresh += came
        if fresh >= 1 << 20:
            fresh -= 1 << 20
            print("a MiB", flush=True)
"""


class Replaying:
    """A process that reads a history again and again, until it is told to stop."""

    def __init__(self, bootstrap: str, request: bytes) -> None:
        command = [sys.executable, "-c", REPLAY, bootstrap.rpartition(":")[2], request.hex()]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None and self._process.stdout.readline()
        self.taken_mib = 1
        self._counting = threading.Thread(target=self._count, daemon=True)
        self._counting.start()

    def _count(self) -> None:
        assert self._process.stdout is not None
        for _ in self._process.stdout:
            self.taken_mib += 1

    def abort(self) -> None:
        self._process.kill()
        self._counting.join(60)
        self._process.wait(60)


class ReplayingReader(Hindrance):
    """Somebody who tries things out on old history, as fast as it is served, in a process of its own."""

    to_be_served_mib = 2 * ANSWER_MIB

    def __init__(self) -> None:
        self._replaying: Replaying | None = None

    def served_mib(self) -> int:
        return 0 if self._replaying is None else self._replaying.taken_mib

    async def __call__(self, bootstrap: str) -> list[Replaying]:
        await fill(bootstrap, "history")
        self._replaying = Replaying(bootstrap, frame_of(large_fetch("history")))
        return [self._replaying]


class QuickHalfSenders(Hindrance):
    """The same with small requests: below any budget, but many."""

    async def __call__(self, bootstrap: str) -> list[RawConnection]:
        frame = frame_of(produce_request("healthy", [os.urandom(30_000)]))
        senders = [await RawConnection.open(bootstrap) for _ in range(200)]
        for sender in senders:
            sender.writer.write(frame[:-10_000])
        return senders


@pytest.mark.parametrize(
    "hindrance", [SilentReaders, HalfSenders, BoastfulHalfSenders, QuickHalfSenders, ReplayingReader]
)
def test_clients_that_stall_or_replay_cost_others_nothing(tmp_path: Path, hindrance: type[Hindrance]):
    with BrokerProcess(tmp_path) as broker:
        asyncio.run(with_and_without(broker, hindrance()))
        assert broker.is_alive()
        assert "Traceback" not in broker.output(), broker.output()[-4000:]


def test_a_silent_reader_that_wakes_up_gets_its_whole_answer(tmp_path: Path):
    async def run(broker: BrokerProcess) -> None:
        connection = await RawConnection.open(broker.bootstrap)
        await connection.create("large")
        values = [os.urandom(900_000) for _ in range(20)]
        for value in values:
            await connection.produce("large", [value])
        sleeper = await RawConnection.open(broker.bootstrap)
        await sleeper.send(frame_of(large_fetch("large")))
        assert len(await connection.fetch("large", 0, max_bytes=1_000_000)) >= 1  # others go on meanwhile
        (size,) = struct.unpack(">i", await sleeper.reader.readexactly(4))
        assert size > 20 * 900_000
        assert values[-1] in await sleeper.reader.readexactly(size)

    with BrokerProcess(tmp_path) as broker:
        asyncio.run(run(broker))
