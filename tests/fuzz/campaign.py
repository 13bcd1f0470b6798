"""Sends malformed frames to a broker, and watches what others notice of it.

Every case is derived from the campaign's seed and its own number, so that one
case can be repeated alone. A case ends in one of four ways: answered, closed,
left (the frame was not complete, so nothing more can be expected) or silent (a
complete frame that got neither an answer nor the end of its connection).
"""

import asyncio
import itertools
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from clients.raw import RawConnection
from frame_writer import FrameWriter
from kio.schema.api_versions.v0.request import ApiVersionsRequest
from kio.schema.index import api_key_map
from mutations import ABSURD, MUTATIONS, with_length

PATIENCE_S = 120.0  # with a loaded machine: an answer takes milliseconds
PARK_TIMEOUT_S = 0.15
# These may keep a client waiting for what another one does, as long as the client asked for.
MAY_PARK = {"produce", "fetch", "share_fetch", "join_group", "sync_group"}
MAX_FRAME_BYTES = 100 << 20

Versions = dict[str, tuple[int, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is sent, and how it came about."""

    number: int
    name: str
    data: bytes

    @property
    def complete(self) -> bool:
        """Whether a broker that knows only the frame's length can tell that all of it has come."""
        if len(self.data) < 4:
            return False
        (size,) = struct.unpack_from(">i", self.data)
        return not 0 <= size <= MAX_FRAME_BYTES or len(self.data) >= 4 + size

    @property
    def may_park(self) -> bool:
        """Whether it, or what follows it in the same bytes, may be a request that waits."""
        keys = {struct.unpack_from(">h", self.data, at)[0] for at in (4,) if len(self.data) >= 6}
        return any(api_key_map.get(key) in MAY_PARK for key in keys) or self.name == "random_bytes"


@dataclass(slots=True)
class Report:
    outcomes: Counter[str] = field(default_factory=Counter)
    silent: list[Case] = field(default_factory=list)
    mismatched: list[Case] = field(default_factory=list)
    bystander_busy_s: list[float] = field(default_factory=list)
    connections: int = 0


async def advertised(bootstrap: str) -> Versions:
    """The APIs and versions that the broker says it serves: name to key, lowest and highest version."""
    connection = await RawConnection.open(bootstrap)
    answer = await connection.call(ApiVersionsRequest())
    connection.close()
    return {
        api_key_map[key.api_key]: (key.api_key, key.min_version, key.max_version) for key in answer.api_keys
    }


def mutated_cases(seed: int, versions: Versions) -> Iterator[Case]:
    """Without end: a random request, spoiled in a random way."""
    mutations, weights = zip(*MUTATIONS, strict=True)
    for number in itertools.count():
        choose = random.Random(f"{seed}:{number}")
        api = choose.choice(sorted(versions))
        key, lowest, highest = versions[api]
        version = choose.randint(lowest, highest)
        request = FrameWriter(api, key, version, choose, items=choose.choice([0, 1, 1, 2]))
        mutation = choose.choices(mutations, weights)[0]
        name = f"{mutation.__name__} {api} v{version}"
        yield Case(number=number, name=name, data=mutation(request, choose))


def bomb_cases(versions: Versions) -> Iterator[Case]:
    """Every absurd value in every length of every API and version."""
    numbers = itertools.count(1_000_000)
    for api, (key, lowest, highest) in sorted(versions.items()):
        for version in range(lowest, highest + 1):
            request = FrameWriter(api, key, version, random.Random(0), items=1)
            for length in request.lengths:
                for absurd in ABSURD[length.form]:
                    name = f"{length.of} at {length.position} is {absurd.hex()}: {api} v{version}"
                    yield Case(number=next(numbers), name=name, data=with_length(request, length, absurd))


class Campaign:
    """Cases from one iterator, sent over several connections at once."""

    def __init__(self, bootstrap: str, cases: Iterator[Case]) -> None:
        self.report = Report()
        self._bootstrap = bootstrap
        self._cases = cases
        self._stalled: list[RawConnection] = []

    async def run(self, count: int, *, workers: int = 6) -> Report:
        self._left = count
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work())
        for connection in self._stalled:
            connection.abort()
        return self.report

    def _next(self) -> Case | None:
        if self._left <= 0:
            return None
        self._left -= 1
        return next(self._cases, None)

    async def _work(self) -> None:
        connection: RawConnection | None = None
        while (case := self._next()) is not None:
            if connection is None:
                connection = await RawConnection.open(self._bootstrap)
                self.report.connections += 1
            outcome = await self._try(connection, case)
            self.report.outcomes[outcome] += 1
            if outcome != "answered":
                self._discard(connection, outcome)
                connection = None
        if connection is not None:
            connection.close()

    async def _try(self, connection: RawConnection, case: Case) -> str:
        try:
            await connection.send(case.data)
            if not case.complete:
                return "left"
            patience = PARK_TIMEOUT_S if case.may_park else PATIENCE_S
            answer = await asyncio.wait_for(connection.receive(), patience)
        except (asyncio.IncompleteReadError, ConnectionError):
            return "closed"
        except TimeoutError:
            if case.may_park:
                return "parked"
            self.report.silent.append(case)
            return "silent"
        if answer[:4] != case.data[8:12]:
            self.report.mismatched.append(case)
        return "answered"

    def _discard(self, connection: RawConnection, outcome: str) -> None:
        """Half frames are left open for a while, as a client that stalls would; the rest is closed."""
        if outcome != "left":
            connection.abort()
            return
        self._stalled.append(connection)
        if len(self._stalled) > 50:
            self._stalled.pop(0).abort()


async def watch(
    bootstrap: str, topic: str, report: Report, stop: asyncio.Event, busy_s: Callable[[], float]
) -> None:
    """A healthy client that goes on writing and reading; its connection must outlive the campaign.

    Noted is for how long the broker was busy, by `busy_s`, during each of its round trips: what it
    worked for others, all of it before somebody who asked in time. A broker that rests instead
    ends the client's patience.
    """
    connection = await RawConnection.open(bootstrap)
    number = 0
    while not stop.is_set():
        before_s = busy_s()
        value = f"bystander {number}".encode()
        offset = await asyncio.wait_for(connection.produce(topic, [value]), PATIENCE_S)
        assert await asyncio.wait_for(connection.fetch(topic, offset), PATIENCE_S) == [(offset, value)]
        report.bystander_busy_s.append(busy_s() - before_s)
        number += 1
        await asyncio.sleep(0.02)
    connection.close()
