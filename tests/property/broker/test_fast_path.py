"""The fast path's promise: its answer is the general path's answer, and the log is the same behind it.

Two brokers get the same requests in the same order. The connections to one of them need no
permission, and take the fast path wherever they may. Those to the other are logged in, and
so the connection's task serves every request from its decoded form. Answers are compared
byte by byte, and so are the logs in the end.
"""

import contextlib
import dataclasses
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.broker import Broker
from headrace.broker.access import offline
from headrace.broker.connection.follower import Follower, WatchedPartition
from headrace.broker.connection.lane import Lane
from headrace.client.connect.channel import Channel
from headrace.client.connect.login import Security
from headrace.clock import SystemClock
from headrace.records import Codec, Record, encode_batch
from headrace.testing.broker import running_broker
from headrace.wire import Api, encode_request

PARTITIONS = 2
LONGER_THAN_A_TEST_MS = 60_000
MOST_ROUNDS = 2_000
NOW_MS = int(time.time() * 1000)
DAY_MS = 86_400_000
_names = itertools.count()
T = TypeVar("T")


class StandingClock(SystemClock):
    """The same wall-clock time for both brokers."""

    def now_ms(self) -> int:
        return NOW_MS


# --- two brokers ----------------------------------------------------------------------------------


class Peer(Channel):
    """A connection that sends frames and returns the bytes that come back."""

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        size = self._exactly(4)
        return size + self._exactly(int.from_bytes(size, "big"))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self._socket.recv(size - len(data)) or pytest.fail("the broker closed the connection")
        return data


@dataclass(frozen=True)
class Side:
    """One of the two brokers."""

    broker: Broker
    security: Security | None

    def connect(self) -> Peer:
        return Peer(
            "127.0.0.1", self.broker.port, client_id="peer", timeout_ms=20_000, security=self.security
        )

    def partition(self, topic: str, index: int) -> Any:
        return self.broker.services.topics.partition(topic, index)

    def wait_for_readers(self, topic: str, count: int) -> None:
        """Until so many fetches wait for records of partition 0, in whichever way."""
        deadline = time.monotonic() + 120
        while sum(map(_waits, tuple(self.partition(topic, 0).readers))) != count:
            assert time.monotonic() < deadline, "the fetch never came to wait"
            time.sleep(0.0005)


def _waits(reader: Any) -> bool:
    return not isinstance(reader, WatchedPartition) or reader.follower.waits


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    fast, general = tmp_path_factory.mktemp("fast"), tmp_path_factory.mktemp("general")
    password = "planted-password-4kQ8"
    offline.add_user(general, "admin", password)
    logged_in = Security(mechanism="PLAIN", user="admin", password=password)
    with contextlib.ExitStack() as stack:
        clock = StandingClock()
        brokers = (
            Side(stack.enter_context(running_broker(fast, clock=clock)), None),
            Side(
                stack.enter_context(
                    running_broker(general, clock=clock, authenticate=True, super_users="admin")
                ),
                logged_in,
            ),
        )
        yield brokers


@pytest.fixture(scope="module")
def taken() -> Iterator[Counter[str]]:
    """How often a request was served where it was received."""
    times: Counter[str] = Counter()
    take, takes_up, answer_missed = Lane.take, Follower.takes_up, Follower.answer_missed

    def counted_take(lane: Lane, frame: memoryview, address: int) -> Any:
        left = take(lane, frame, address)
        times["lane"] += left is not None
        return left

    def counted_takes_up(follower: Follower, frame: memoryview, address: int) -> bool:
        taken = takes_up(follower, frame, address)
        times["follower"] += taken
        return taken

    def counted_missed(follower: Follower) -> None:
        times["missed"] += follower._missed is not None
        answer_missed(follower)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lane, "take", counted_take)
        patch.setattr(Follower, "takes_up", counted_takes_up)
        patch.setattr(Follower, "answer_missed", counted_missed)
        yield times


# --- requests -------------------------------------------------------------------------------------


def plain(*values: bytes, timestamp_ms: int = NOW_MS, key: bytes | None = b"k", **fields: Any) -> bytes:
    records = [Record(0, timestamp_ms, key, value) for value in values]
    return bytes(encode_batch(records, **fields))


def damaged() -> bytes:
    batch = bytearray(plain(b"damaged"))
    batch[-1] ^= 1
    return bytes(batch)


BATCHES: dict[str, bytes | None] = {
    "plain": plain(b"x"),
    "several": plain(*(b"%d" % number for number in range(5))),
    "larger": plain(bytes(3000)),
    "over what goes alone": plain(bytes(20_000)),
    "over what the topic takes": plain(bytes(40_000)),
    "without a key": plain(b"x", key=None),
    "compressed": plain(b"x" * 500, codec=Codec.GZIP),
    "damaged": damaged(),
    "two at once": plain(b"x") + plain(b"y"),
    "of the future": plain(b"x", timestamp_ms=NOW_MS + 2 * DAY_MS),
    "of the past": plain(b"x", timestamp_ms=NOW_MS - 2 * DAY_MS),
    "idempotent": plain(b"x", producer_id=1, producer_epoch=0, base_sequence=0),
    "without a sequence number": plain(b"x", producer_id=1, producer_epoch=0),
    "of no transaction": plain(b"x", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
    "a control batch": plain(b"x", control=True),
    "cut off": plain(b"x")[:-3],
    "too short": b"short",
    "empty": b"",
    "missing": None,
}
TOPICS: dict[str, dict[str, str]] = {
    "plain": {"max.message.bytes": "30000"},
    "compacted": {"cleanup.policy": "compact"},
    "append time": {"message.timestamp.type": "LogAppendTime"},
    "strict times": {"message.timestamp.after.max.ms": "1000", "message.timestamp.before.max.ms": "1000"},
    "overload": {"headrace.overload": "block"},
}


@dataclass(frozen=True)
class Produce:
    """Some batches, one request after the other in one piece; all but one may be in the same request."""

    writer: int
    batches: tuple[str, ...]
    partition: int = 0
    acks: int = -1
    version: int = 9

    def frames(self, topic: str) -> list[bytes]:
        return [self._frame(topic, name, number) for number, name in enumerate(self.batches)]

    def _frame(self, topic: str, name: str, number: int) -> bytes:
        data = [{"name": topic, "partition_data": [{"index": self.partition, "records": BATCHES[name]}]}]
        fields = {"acks": self.acks, "timeout": 10_000, "topic_data": data}
        return bytes(encode_request(Api.PRODUCE, self.version, number, "peer", fields))


@dataclass(frozen=True)
class Fetch:
    """From so many records before the end of each partition, in this order of partitions."""

    reader: int
    behind: tuple[int, ...] = (0,) * PARTITIONS
    backwards: bool = False
    committed: bool = False
    partition_bytes: int = 1 << 20
    version: int = 12
    wait_ms: int = 0

    def frame(self, topic: str, ends: list[int]) -> bytes:
        parts = [
            {"partition": index, "fetch_offset": end - behind, "partition_max_bytes": self.partition_bytes}
            for index, (end, behind) in enumerate(zip(ends, self.behind, strict=True))
        ]
        fields = {
            "max_wait": self.wait_ms,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": int(self.committed),
            "session_epoch": -1,
            "topics": [{"topic": topic, "partitions": parts[::-1] if self.backwards else parts}],
        }
        return bytes(encode_request(Api.FETCH, self.version, 7, "peer", fields))


@dataclass(frozen=True)
class Wait:
    """Readers wait at the end of all partitions until one more batch comes."""

    readers: tuple[int, ...]
    produce: Produce
    committed: bool = False
    partition_bytes: int = 1 << 20


@dataclass(frozen=True)
class Delete:
    """The records before so many before the end of a partition."""

    partition: int
    kept: int


@dataclass(frozen=True)
class Remake:
    """The topic is deleted, and created again."""


Step = Produce | Fetch | Wait | Delete | Remake

# Most requests are like the last one of their connection, or the fast path would hardly be taken.
batch_names = st.one_of(st.just("plain"), st.sampled_from([*BATCHES]))
usual_batches = st.sampled_from(["plain", "several", "larger", "over what goes alone", "compressed"])
partitions = st.integers(0, PARTITIONS - 1)
produces = st.one_of(
    st.builds(Produce, writer=st.just(0), batches=st.tuples(batch_names)),
    st.builds(Produce, writer=st.just(0), batches=st.tuples(batch_names), partition=partitions),
    st.builds(Produce, writer=st.just(0), batches=st.lists(batch_names, min_size=2, max_size=4).map(tuple)),
    st.builds(
        Produce,
        writer=st.integers(0, 1),
        batches=st.tuples(batch_names),
        partition=st.integers(0, PARTITIONS),
        acks=st.sampled_from([-1, 1, 0, 5]),
        version=st.sampled_from([9, 7, 12]),
    ),
)
fetches = st.one_of(
    st.builds(
        Fetch,
        reader=st.just(0),
        behind=st.sampled_from([(0, 0), (1, 0), (0, 1), (2, 1)]),
        wait_ms=st.just(LONGER_THAN_A_TEST_MS),
    ),
    st.builds(
        Fetch,
        reader=st.integers(0, 1),
        behind=st.tuples(*[st.sampled_from([0, 0, 1, 2, 100, -1])] * PARTITIONS),
        backwards=st.booleans(),
        committed=st.booleans(),
        partition_bytes=st.sampled_from([1 << 20, 1 << 20, 100, 1]),
        version=st.sampled_from([12, 12, 11, 4]),
    ),
)
waits = st.one_of(
    st.builds(
        Wait,
        readers=st.just((0,)),
        produce=st.builds(Produce, writer=st.just(0), batches=st.tuples(batch_names), partition=partitions),
    ),
    st.builds(
        Wait,
        readers=st.sampled_from([(0,), (1,), (0, 1)]),
        produce=st.builds(
            Produce,
            writer=st.integers(0, 1),
            batches=st.tuples(usual_batches),
            partition=partitions,
            acks=st.sampled_from([-1, 1]),
        ),
        committed=st.booleans(),
        partition_bytes=st.sampled_from([1 << 20, 1 << 20, 100]),
    ),
)
deletions = st.builds(Delete, partition=partitions, kept=st.integers(0, 3))
steps = st.one_of(produces, produces, produces, fetches, fetches, waits, waits, deletions, st.builds(Remake))


# --- both get the same ----------------------------------------------------------------------------


class Twins:
    """The same requests to both brokers, on connections of their own, and what comes back compared."""

    def __init__(self, sides: tuple[Side, Side], config: dict[str, str], stack: contextlib.ExitStack) -> None:
        self.sides = sides
        self.topic = f"t-{next(_names)}"
        self.config = config
        self.admins, *self.writers = self._connections(3, stack)
        self.readers = self._connections(2, stack)
        self.create()

    def _connections(self, count: int, stack: contextlib.ExitStack) -> list[tuple[Peer, Peer]]:
        def connect(side: Side) -> Peer:
            return stack.enter_context(contextlib.closing(side.connect()))

        return [(connect(self.sides[0]), connect(self.sides[1])) for _ in range(count)]

    def create(self) -> None:
        configs = [{"name": name, "value": value} for name, value in self.config.items()]
        topic = {
            "name": self.topic,
            "num_partitions": PARTITIONS,
            "replication_factor": 1,
            "configs": configs,
        }
        self._admin(Api.CREATE_TOPICS, 7, {"topics": [topic]}, lambda answer: answer.topics[0].error_code)

    def _admin(self, api: Api, version: int, fields: dict[str, Any], code: Callable[[Any], int]) -> None:
        for admin in self.admins:
            assert code(admin.request(api, version, {**fields, "timeout": 10_000})) == 0

    def ends(self) -> list[int]:
        """The high watermarks."""
        return self.eventually_same(
            lambda side: [side.partition(self.topic, index).log.high_watermark for index in range(PARTITIONS)]
        )

    def eventually_same(self, look: Callable[[Side], T]) -> T:
        """What is seen in both; from outside it may be seen a moment after it was answered."""
        deadline = time.monotonic() + 120
        while (fast := look(self.sides[0])) != (general := look(self.sides[1])):
            assert time.monotonic() < deadline, f"{fast} on the fast path, {general} on the general path"
            time.sleep(0.0005)
        return fast

    def do(self, step: Step) -> None:
        match step:
            case Produce():
                self.produce(step)
            case Fetch():
                self.fetch(step)
            case Wait():
                self.wait(step)
            case Delete():
                self.delete(step)
            case Remake():
                self._admin(
                    *(Api.DELETE_TOPICS, 5, {"topic_names": [self.topic]}),
                    lambda answer: answer.responses[0].error_code,
                )
                self.create()

    def produce(self, step: Produce) -> None:
        writers, frames = self.writers[step.writer], step.frames(self.topic)
        for writer in writers:
            writer.send(b"".join(frames))
        if step.acks == 0:  # no answers: that of the next request comes behind their sync
            frames = [Fetch(reader=0, version=11).frame(self.topic, [0] * PARTITIONS)]
            for writer in writers:
                writer.send(frames[0])
        for _ in frames:
            self.same(writers)

    def fetch(self, step: Fetch) -> None:
        ends = self.ends()
        if all(step.behind[index] <= 0 or not ends[index] for index in range(PARTITIONS)):
            step = dataclasses.replace(step, wait_ms=0)  # there may be nothing to wait for
        self.same_answer(self.readers[step.reader], step.frame(self.topic, ends))

    def wait(self, step: Wait) -> None:
        about = {"committed": step.committed, "partition_bytes": step.partition_bytes}
        fetch = Fetch(reader=0, wait_ms=LONGER_THAN_A_TEST_MS, **about)
        frame = fetch.frame(self.topic, self.ends())
        for number, reader in enumerate(step.readers, start=1):
            for side, peer in zip(self.sides, self.readers[reader], strict=True):
                peer.send(frame)
                side.wait_for_readers(self.topic, number)
        before = self.ends()
        self.produce(step.produce)
        if self.ends() == before:  # it was refused: readers still wait
            self.produce(Produce(writer=step.produce.writer, batches=("plain",)))
        for reader in step.readers:
            self.same(self.readers[reader])

    def delete(self, step: Delete) -> None:
        ends = self.ends()
        part = {"partition_index": step.partition, "offset": max(0, ends[step.partition] - step.kept)}
        fields = {"topics": [{"name": self.topic, "partitions": [part]}], "timeout": 10_000}
        frame = bytes(encode_request(Api.DELETE_RECORDS, 2, 1, "peer", fields))
        self.same_answer(self.admins, frame)

    def same_answer(self, peers: tuple[Peer, Peer], frame: bytes) -> None:
        for peer in peers:
            peer.send(frame)
        self.same(peers)

    def same(self, peers: tuple[Peer, Peer]) -> bytes:
        fast, general = (peer.receive() for peer in peers)
        assert fast == general
        return fast

    def same_logs(self) -> None:
        for index in range(PARTITIONS):
            self.eventually_same(lambda side, index=index: _standing(side.partition(self.topic, index)))
            fast, general = (side.partition(self.topic, index).log for side in self.sides)
            assert fast.read(fast.start_offset, 1 << 30) == general.read(general.start_offset, 1 << 30)


def _standing(partition: Any) -> tuple[int, ...]:
    """Where its log stands, and what was counted."""
    log = partition.log
    offsets = log.start_offset, log.high_watermark, log.last_stable_offset, log.end_offset
    produced = partition.produced_records, partition.produced_bytes
    return (*offsets, *produced, partition.fetched_records, partition.fetched_bytes)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(kind=st.sampled_from([*TOPICS]), sequence=st.lists(steps, min_size=1, max_size=30))
def test_the_fast_path_answers_as_the_general_path_and_leaves_the_same_log(sides, taken, kind, sequence):
    with contextlib.ExitStack() as stack:
        twins = Twins(sides, TOPICS[kind], stack)
        for step in sequence:
            twins.do(step)
        twins.same_logs()


def test_requests_like_these_do_take_the_fast_path(sides, taken):
    """A batch takes the lane if nothing else has come by then: on a busy machine not the first ones do."""
    before = Counter(taken)
    with contextlib.ExitStack() as stack:
        twins = Twins(sides, {}, stack)
        for number in range(MOST_ROUNDS):
            twins.do(Wait(readers=(0,), produce=Produce(0, ("plain",), partition=number % PARTITIONS)))
            twins.do(Produce(0, ("plain",)))
            twins.do(Fetch(reader=0, behind=(1, 0)))
            if min((taken - before)[way] for way in ("lane", "follower")) > 20:
                break
        twins.same_logs()
    assert (taken - before)["lane"] > 20
    assert (taken - before)["follower"] > 20
