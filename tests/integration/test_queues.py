"""Queues on a real broker: leases, redelivery, dead letters, restarts, refusals; and as Kafka does it."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tests.integration.standstill import Pulse, judged

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)

from clients.launch import ClientUnavailable, java_command  # noqa: E402
from queue_member import ACCEPT, REJECT, RELEASE, RENEW, QueueMember  # noqa: E402

from headrace.broker import Broker  # noqa: E402
from headrace.cli.clients import new_reader  # noqa: E402
from headrace.cli.main import run  # noqa: E402
from headrace.client import Connection  # noqa: E402
from headrace.client.connect.channel import Channel  # noqa: E402
from headrace.client.events import group_events, read_events  # noqa: E402
from headrace.client.queues import describe_queue  # noqa: E402
from headrace.client.topics.log import Log  # noqa: E402
from headrace.groups import Code  # noqa: E402
from headrace.testing.broker import BrokerProcess, running_broker  # noqa: E402
from headrace.testing.kafka import KafkaServer, PeerUnavailable  # noqa: E402
from headrace.wire import Api  # noqa: E402

PATIENCE_S = 240.0
WITHOUT_END_MS = 1_800_000  # longer than any test may take


class Queue:
    """A topic of one partition and a queue of the same name on a broker."""

    def __init__(self, broker: BrokerProcess | Broker, name: str) -> None:
        self.broker, self.name = broker, name
        self.bootstrap = f"127.0.0.1:{broker.port}"
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "metadata.recovery.strategy": "none"})
        self._members: list[QueueMember] = []

    def create(self, **settings: str) -> "Queue":
        self.admin.create_topics([NewTopic(self.name, 1, 1)])[self.name].result(20)
        self.set(**{"share.auto.offset.reset": "earliest", **settings})
        return self

    def set(self, **settings: str) -> None:
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.GROUP, self.name, incremental_configs=changes)
        for done in self.admin.incremental_alter_configs([resource]).values():
            done.result(20)

    def produce(self, *values: bytes) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for value in values:
            producer.produce(self.name, value, key=b"k", headers={"h": b"1"})
        assert producer.flush(20) == 0

    def topic_id(self) -> Any:
        channel = Channel("127.0.0.1", self.broker.port, client_id="test", timeout_ms=20_000)
        answer = channel.request(Api.METADATA, 12, {"topics": [{"topic_id": None, "name": self.name}]})
        channel.close()
        return answer.topics[0].topic_id

    def member(self, name: str) -> QueueMember:
        """A member that has joined."""
        member = QueueMember(self.broker.port, self.name, name, self.topic_id())
        self._members.append(member)
        assert member.beat(self.name).error_code == 0
        return member

    def dead_letters(self, count: int) -> list[Any]:
        """Waits until there are so many."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "dead", "auto.offset.reset": "earliest"}
        )
        found: list[Any] = []
        deadline = time.monotonic() + PATIENCE_S
        try:
            consumer.assign([TopicPartition(f"dlq.{self.name}", 0, 0)])
            while len(found) < count and time.monotonic() < deadline:
                message = consumer.poll(0.5)
                if message is not None and message.error() is None:
                    found.append(message)
        finally:
            consumer.close()
        return found

    def close(self) -> None:
        for member in self._members:
            member.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("queues")) as started:
        yield started


Queues = Callable[[], Queue]


@pytest.fixture
def queues(broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[Queues]:
    """Makes queues of this test's own."""
    made: list[Queue] = []

    def make() -> Queue:
        name = f"q{abs(hash((request.node.name, len(made)))) % 10**8}"
        made.append(Queue(broker, name).create())
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def queue(queues: Queues) -> Queue:
    return queues()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.02)


# --- leases -------------------------------------------------------------------------------------


def test_each_record_has_one_reader_and_is_gone_once_accepted(queue: Queue) -> None:
    queue.produce(b"0", b"1", b"2")
    one, two = queue.member("one"), queue.member("two")
    one.fetch()
    assert one.values() == [(b"0", 1), (b"1", 1), (b"2", 1)]
    two.fetch(wait_ms=100)
    assert two.values() == []
    assert one.acknowledge((0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, ACCEPT)) == 0
    two.fetch()
    assert two.values() == [(b"1", 2)]


def test_a_fetch_waits_for_records_and_wakes_for_released_ones(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        queue = Queue(broker, "work").create()
        queue.produce(b"0")
        one, two = queue.member("one"), queue.member("two")
        one.fetch()
        waiting = threading.Thread(target=lambda: two.fetch(wait_ms=WITHOUT_END_MS), daemon=True)
        waiting.start()
        wait_until(lambda: bool(broker.services.queues.store._readers))
        assert one.acknowledge((0, 0, RELEASE)) == 0
        waiting.join(PATIENCE_S)
        assert not waiting.is_alive(), "nobody woke it"
        assert two.values() == [(b"0", 2)]
        queue.close()


def test_acknowledgements_go_along_with_a_fetch(queue: Queue) -> None:
    queue.produce(b"0", b"1")
    one = queue.member("one")
    one.fetch()
    answer = one.fetch(wait_ms=100, acks=[(0, 0, ACCEPT), (1, 1, RELEASE)])
    assert answer.responses[0].partitions[0].acknowledge_error_code == 0
    assert one.values() == [(b"1", 2)]


def test_a_lease_that_ran_out_is_delivered_again_and_its_late_word_does_not_count(queue: Queue) -> None:
    queue.set(**{"share.record.lock.duration.ms": "1000"})
    queue.produce(b"0")
    slow, quick = queue.member("slow"), queue.member("quick")
    slow.fetch()
    queue.set(**{"share.record.lock.duration.ms": "60000"})  # of the leases from now on
    quick.fetch()
    assert quick.values() == [(b"0", 2)]
    assert slow.acknowledge((0, 0, ACCEPT)) == Code.INVALID_RECORD_STATE
    assert quick.acknowledge((0, 0, ACCEPT)) == 0
    assert slow.acknowledge((0, 0, ACCEPT)) == Code.INVALID_RECORD_STATE


def test_a_renewed_lease_holds(queues: Queues) -> None:
    def renew(lease_s: float, pulse: Pulse) -> None:
        queue = queues()
        queue.set(**{"share.record.lock.duration.ms": f"{1000 * lease_s:.0f}"})
        queue.produce(b"0")
        slow, other = queue.member("slow"), queue.member("other")
        pulse.beat()
        slow.fetch()
        for _ in range(8):  # for longer than one lease
            other.fetch(wait_ms=round(150 * lease_s))
            assert other.values() == []
            assert slow.acknowledge((0, 0, RENEW), renew=True) == 0
            pulse.beat()
        assert slow.acknowledge((0, 0, RENEW)) == Code.INVALID_REQUEST
        assert slow.acknowledge((0, 0, ACCEPT)) == 0

    judged(renew, 6, 30)


def test_with_leases_by_heartbeat_a_member_that_is_slow_but_alive_keeps_its_records(queues: Queues) -> None:
    def work(session_s: float, pulse: Pulse) -> None:
        queue = queues()
        queue.set(
            **{
                "share.record.lock.duration.ms": "1000",
                "headrace.share.lease": "heartbeat",
                "share.session.timeout.ms": f"{1000 * session_s:.0f}",
            }
        )
        queue.produce(b"0")
        pulse.beat()
        slow, other = queue.member("slow"), queue.member("other")
        slow.fetch()
        for _ in range(3):
            other.fetch(wait_ms=900)
            assert other.values() == [] and slow.beat().error_code == 0 and other.beat().error_code == 0
            pulse.beat()
        deadline = time.monotonic() + PATIENCE_S
        while not other.values() and time.monotonic() < deadline:  # slow says nothing any more
            assert other.beat().error_code == 0
            other.fetch(wait_ms=500)
            pulse.beat()
        assert other.values() == [(b"0", 2)]

    judged(work, 8, 30)


def test_what_a_member_had_is_free_when_its_connection_is_gone_and_that_delivery_counts(queue: Queue) -> None:
    queue.produce(b"0")
    one, two = queue.member("one"), queue.member("two")
    one.fetch()
    one.close()
    two.fetch()
    assert two.values() == [(b"0", 2)]


def test_a_session_that_is_closed_gives_back_what_it_did_not_look_at(queue: Queue) -> None:
    queue.produce(b"0", b"1")
    one, two = queue.member("one"), queue.member("two")
    one.fetch()
    assert one.acknowledge((0, 0, ACCEPT), epoch=-1) == 0
    two.fetch()
    assert two.values() == [(b"1", 1)]
    assert one.acknowledge((1, 1, ACCEPT)) == Code.SHARE_SESSION_NOT_FOUND


def test_no_more_is_in_flight_than_allowed(queue: Queue) -> None:
    queue.set(**{"share.partition.max.record.locks": "4"})
    queue.produce(*(b"%d" % number for number in range(10)))
    one = queue.member("one")
    one.fetch(by_record=True)
    assert len(one.got) == 4
    one.fetch(by_record=True, wait_ms=100)
    assert one.got == []
    one.fetch(by_record=True, acks=[(0, 1, ACCEPT)])
    assert [offset for _, offset, _, _ in one.got] == [4, 5]


def test_a_queue_that_fell_off_the_log_goes_on_where_it_begins_and_the_fall_is_an_event(queue: Queue) -> None:
    queue.produce(b"0", b"1", b"2", b"3")
    one = queue.member("one")
    place = TopicPartition(queue.name, 0, 3)
    next(iter(queue.admin.delete_records([place]).values())).result(20)
    one.fetch()
    assert one.values() == [(b"3", 1)]
    log = Log(queue.admin, queue.bootstrap)

    def falls() -> list[int]:
        events = group_events(read_events(log, lambda: new_reader(log.bootstrap)), queue.name)
        return [event["records"] for event in events if event["kind"] == "fell-off"]

    wait_until(lambda: falls() == [3])


# --- dead letters -------------------------------------------------------------------------------


def test_a_record_given_up_is_a_dead_letter_with_all_it_had_and_where_from_and_why(queue: Queue) -> None:
    queue.set(**{"share.delivery.count.limit": "2"})
    queue.produce(b"bad", b"tired")
    one = queue.member("one")
    one.fetch()
    assert one.acknowledge((0, 0, REJECT), (1, 1, RELEASE)) == 0
    one.fetch()
    assert one.values() == [(b"tired", 2)]
    assert one.acknowledge((1, 1, RELEASE)) == 0
    letters = queue.dead_letters(2)
    assert [(letter.key(), letter.value()) for letter in letters] == [(b"k", b"bad"), (b"k", b"tired")]
    told = [dict(letter.headers()) for letter in letters]
    assert all(each["h"] == b"1" and each["__dlq.errors.topic"] == queue.name.encode() for each in told)
    assert [each["__dlq.errors.offset"] for each in told] == [b"0", b"1"]
    assert [each["__dlq.errors.delivery.count"] for each in told] == [b"1", b"2"]
    assert b"rejected" in told[0]["__dlq.errors.message"] and b"limit" in told[1]["__dlq.errors.message"]
    one.fetch(wait_ms=100)
    assert one.got == []


def test_without_dead_letters_a_record_given_up_is_gone_as_in_kafka(queue: Queue) -> None:
    queue.set(**{"headrace.deadletterqueue.enable": "false"})
    queue.produce(b"bad", b"good")
    one = queue.member("one")
    one.fetch()
    assert one.acknowledge((0, 0, REJECT), (1, 1, ACCEPT)) == 0
    wait_until(lambda: left_in(queue) == 0)
    assert dead_letter_count(queue) == 0


def left_in(queue: Queue) -> int:
    """Records that are not finished."""
    connection = Connection(bootstrap_servers=queue.bootstrap)
    return sum(row["left"] for row in describe_queue(connection, queue.name)["partitions"])


def dead_letter_count(queue: Queue) -> int:
    topic = f"dlq.{queue.name}"
    if topic not in queue.admin.list_topics(timeout=20).topics:
        return 0
    latest = {TopicPartition(topic, 0): OffsetSpec.latest()}
    return int(next(iter(queue.admin.list_offsets(latest).values())).result(20).offset)


def test_redriven_dead_letters_come_back_once(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    queue.produce(b"bad", b"worse")
    one = queue.member("one")
    one.fetch()
    assert one.acknowledge((0, 1, REJECT)) == 0
    assert len(queue.dead_letters(2)) == 2
    where = ["-b", queue.bootstrap, "--json"]
    assert run(["queues", "redrive", queue.name, "--most", "1", *where]) == 0
    assert json.loads(capsys.readouterr().out)["sent"] == 1
    assert run(["queues", "redrive", queue.name, *where]) == 0
    assert json.loads(capsys.readouterr().out)["sent"] == 1
    assert run(["queues", "redrive", queue.name, *where]) == 0
    assert json.loads(capsys.readouterr().out)["sent"] == 0
    seen: list[tuple[bytes | None, int]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(seen) < 2 and time.monotonic() < deadline:
        one.fetch(wait_ms=500)
        seen += one.values()
        if one.got:  # the markers of the transactions between them were never delivered
            assert one.acknowledge(*((offset, offset, ACCEPT) for _, offset, _, _ in one.got)) == 0
    assert seen == [(b"bad", 1), (b"worse", 1)]


def test_the_command_line_lists_describes_and_sets(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    queue.produce(b"0", b"1")
    one = queue.member("one")
    one.fetch()
    assert one.acknowledge((0, 0, ACCEPT)) == 0
    where = ["-b", queue.bootstrap]
    assert run(["queues", "list", "--json", *where]) == 0
    listed = {row["queue"]: row for row in json.loads(capsys.readouterr().out)["queues"]}
    assert (listed[queue.name]["members"], listed[queue.name]["left"]) == (1, 1)
    assert run(["queues", "describe", queue.name, *where]) == 0
    assert f"dlq.{queue.name}" in capsys.readouterr().out
    assert run(["queues", "set", queue.name, "share.delivery.count.limit=7", "--json", *where]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["share.delivery.count.limit"] == "7"
    assert run(["queues", "set", queue.name, "share.delivery.count.limit=none", *where]) == 1
    assert run(["queues", "set", queue.name, "nonsense", *where]) == 2
    assert run(["queues", "describe", "nobody", *where]) == 1


# --- what makes no sense ------------------------------------------------------------------------


def test_requests_that_make_no_sense_are_refused_with_kafkas_codes(queue: Queue) -> None:
    queue.produce(b"0")
    one = queue.member("one")
    assert one.acknowledge((0, 0, ACCEPT), epoch=0) == Code.INVALID_SHARE_SESSION_EPOCH
    assert one.acknowledge((0, 0, ACCEPT), epoch=3) == Code.SHARE_SESSION_NOT_FOUND
    assert one.fetch(acks=[(0, 0, ACCEPT)]).error_code == Code.INVALID_REQUEST
    one.fetch()
    assert one.fetch(epoch=9).error_code == Code.INVALID_SHARE_SESSION_EPOCH
    assert one.acknowledge((0, 5, ACCEPT)) == Code.INVALID_RECORD_STATE
    assert one.acknowledge((0, 0, 9)) == Code.INVALID_REQUEST
    stranger = QueueMember(queue.broker.port, "nowhere", "x", queue.topic_id())
    assert stranger.fetch().error_code == Code.GROUP_ID_NOT_FOUND
    assert stranger.beat(epoch=5).error_code == Code.GROUP_ID_NOT_FOUND
    stranger.close()
    one.topic_id = type(one.topic_id)(int=1)
    assert one.fetch(wait_ms=100).responses[0].partitions[0].error_code == Code.UNKNOWN_TOPIC_ID


def test_a_fetch_of_no_partitions_waits_without_holding_the_broker_up(queue: Queue) -> None:
    member = queue.member("idle")
    member.partitions = range(0)
    assert member.fetch(wait_ms=300).error_code == 0
    assert queue.admin.list_topics(timeout=60).topics  # somebody else is answered


# --- restarts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_restart_forgets_no_acknowledgement_no_delivery_and_no_lease(tmp_path: Path, how: str) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        queue = Queue(broker, "work").create(**{"share.record.lock.duration.ms": "60000"})
        queue.produce(b"0", b"1", b"2", b"3")
        one = queue.member("one")
        one.fetch()
        assert one.acknowledge((0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, REJECT)) == 0
        assert len(queue.dead_letters(1)) == 1
        getattr(broker, how)()
        broker.start()
        again, two = queue.member("one"), queue.member("two")
        two.fetch()
        assert two.values() == [(b"1", 2)], "accepted, dead and leased records stay where they are"
        again.fetch(wait_ms=100)
        assert again.values() == []
        assert again.acknowledge((3, 3, ACCEPT)) == 0, "the lease outlived the broker"
        assert two.acknowledge((1, 1, ACCEPT)) == 0
        wait_until(lambda: left_in(queue) == 0)
        assert dead_letter_count(queue) == 1
        queue.close()


# --- other clients, and Kafka -------------------------------------------------------------------


def test_librdkafkas_share_consumers_share_the_work(broker: BrokerProcess) -> None:
    queue = Queue(broker, "librdkafka").create()
    queue.produce(*(b"%d" % number for number in range(300)))
    properties = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": queue.name,
        "share.acknowledgement.mode": "explicit",
        "max.poll.records": 50,
        "log_level": 0,
    }
    consumers = [ShareConsumer(properties) for _ in range(3)]
    for consumer in consumers:
        consumer.subscribe([queue.name])
    accepted: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(accepted) < 300 and time.monotonic() < deadline:
        for consumer in consumers:
            taken = [message for message in consumer.poll(0.2) if message.error() is None]
            for number, message in enumerate(taken):
                again = message.delivery_count() == 1 if hasattr(message, "delivery_count") else False
                release = again and number == 0
                consumer.acknowledge(message, AcknowledgeType.RELEASE if release else AcknowledgeType.ACCEPT)
                accepted += [] if release else [message.value()]
            if taken:
                assert all(error is None for error in consumer.commit_sync(20).values())
    for consumer in consumers:
        consumer.close()
    assert sorted(accepted, key=int) == [b"%d" % number for number in range(300)]


def test_a_librdkafka_consumer_that_works_for_longer_than_a_lease_keeps_its_record(queue: Queue) -> None:
    lease_s = 1.0
    queue.set(
        **{"share.record.lock.duration.ms": f"{lease_s * 1000:.0f}", "headrace.share.lease": "heartbeat"}
    )
    queue.produce(b"slow")
    properties = {
        "bootstrap.servers": queue.bootstrap,
        "group.id": queue.name,
        "share.acknowledgement.mode": "explicit",
        "log_level": 0,
    }
    slow, other = ShareConsumer(properties), ShareConsumer(properties)
    slow.subscribe([queue.name])
    (held,) = taken(slow)
    taken_s = time.monotonic()
    queue.produce(b"quick")
    other.subscribe([queue.name])
    seen = taken(other)  # so it is in the group, and gets what nobody has
    for message in seen:
        other.acknowledge(message, AcknowledgeType.ACCEPT)
    other.commit_sync(20)
    while time.monotonic() < taken_s + 3 * lease_s:  # the work of the slow one, which says nothing meanwhile
        seen += other.poll(0.3)
    assert [message.value() for message in seen] == [b"quick"]
    slow.acknowledge(held, AcknowledgeType.ACCEPT)
    assert all(error is None for error in slow.commit_sync(20).values())
    slow.close()
    other.close()
    assert left_in(queue) == 0


def taken(consumer: ShareConsumer) -> list[Any]:
    """The records of the first poll that has some."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if found := [message for message in consumer.poll(0.5) if message.error() is None]:
            return found
    raise AssertionError("no record was delivered")


# What the Java program prints, on ours and on Kafka; docs/guides/queues.md gives the reasons.
DIFFERENT = {
    "timeout.late": {"headrace": "[InvalidRecordStateException]", "kafka": "[done]"},
    "admin.offset": {"headrace": "4 lag Optional[1]", "kafka": "0 lag Optional[1]"},
}
SAME = {
    "implicit.delivered": "0x1,1x1,2x1,3x1,4x1",
    "implicit.commit": "[done]",
    "implicit.again": "",
    "implicit.next": "5x1,6x1",
    "kinds.commit": "[done]",
    "kinds.redelivered": "1x2,3x2",
    "kinds.accepted": "[done]",
    "kinds.left": "",
    "limit.delivery.1": "0x1",
    "limit.delivery.2": "0x2",
    "limit.delivery.3": "0x3",
    "limit.over": "",
    "timeout.first": "0x1,1x1",
    "timeout.lock": "Optional[2000]",
    "timeout.redelivered": "0x2,1x2",
    "timeout.accepted": "[done]",
    "renewal.other": "",
    "renewal.0": "[done]",
    "renewal.held.0": "0x1",
    "renewal.other.0": "",
    "renewal.1": "[done]",
    "renewal.held.1": "0x1",
    "renewal.other.1": "",
    "renewal.accepted": "[done]",
    "renewal.left": "",
    "closing.held": "0x1,1x1,2x1",
    "closing.redelivered": "2 from 1",
    "latest.old": "",
    "latest.new": "3x1,4x1",
    "committed.seen": "0.0x1,0.1x1,2.0x1,2.1x1",
    "committed.then": "openx1",
    "recordlimit.0": "0x1,1x1,2x1",
    "recordlimit.1": "3x1,4x1,5x1",
    "recordlimit.2": "6x1,7x1,8x1",
    "two.seen": "40 of which different 40",
    "mistakes.unacknowledged": "IllegalStateException",
    "mistakes.commit": "[done]",
    "mistakes.twice": "IllegalStateException",
    "admin.commit": "[done]",
    "admin.stable": "Stable 1",
    "admin.alter.busy": "GroupNotEmptyException",
    "admin.deleteoffsets.busy": "GroupNotEmptyException",
    "admin.delete.busy": "GroupNotEmptyException",
    "admin.empty": "Empty",
    "admin.listed": "Share share Empty",
    "admin.alter": "done",
    "admin.altered": "2 lag Optional[4]",
    "admin.reread": "2x1,3x1,4x1,5x1",
    "admin.deleteoffsets": "done",
    "admin.delete": "done",
    "admin.gone": "GroupIdNotFoundException",
    "admin.delete.unknown": "GroupIdNotFoundException",
    "admin.alter.unknown": "done",
    "admin.consumerview": "GroupIdNotFoundException",
    "admin.config": "InvalidConfigurationException",
    "protocols.classic": "InconsistentGroupProtocolException",
    "protocols.consumer": "GroupIdNotFoundException",
    "protocols.share": "GroupIdNotFoundException",
}
KAFKA = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "300",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


def life_of(bootstrap: str, *cases: str) -> dict[str, str]:
    try:
        command = java_command("QueueLife")
    except ClientUnavailable as error:
        pytest.skip(str(error))
    done = subprocess.run([*command, bootstrap, *cases], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def expected(target: str) -> dict[str, str]:
    return SAME | {name: outcomes[target] for name, outcomes in DIFFERENT.items()}


def test_the_java_share_consumer_works(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", group_share_heartbeat_interval_ms=300) as broker:
        seen = life_of(broker.bootstrap, "implicit", "kinds", "renewal", "recordLimit")
    assert {name.partition(".")[0] for name in seen} == {"implicit", "kinds", "renewal", "recordlimit"}
    assert seen.items() <= expected("headrace").items()


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.parametrize("target", ["headrace", "kafka"])
def test_the_java_client_sees_the_same_on_ours_and_on_kafka(target: str, tmp_path: Path) -> None:
    if target == "headrace":
        with BrokerProcess(tmp_path / "data", group_share_heartbeat_interval_ms=300) as broker:
            seen = life_of(broker.bootstrap)
    else:
        try:
            with KafkaServer(KAFKA, quick=True) as kafka:
                seen = life_of(kafka.bootstrap)
        except PeerUnavailable as error:
            pytest.skip(str(error))
    assert seen == expected(target)
