"""Transactions over the wire: both versions of the protocol, real clients, restarts."""

import asyncio
import contextlib
import itertools
import subprocess
import time
from pathlib import Path

import pytest
from clients.launch import ClientUnavailable, java_command
from clients.raw_transactions import RawProducer, Refused
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from headrace.broker import Broker, BrokerSettings
from headrace.groups import GroupSettings
from headrace.groups.transactions import InitRequest
from headrace.testing.broker import BrokerProcess, running_broker
from headrace.testing.disk import SimulatedDisk
from headrace.wire import Api

FENCED, INVALID_EPOCH, INVALID_STATE, INVALID_MAPPING, INVALID_TIMEOUT = 90, 47, 48, 49, 50
ABORTABLE = 120  # what a transaction can only be aborted after
UNSTABLE, UNKNOWN_PARTITION, NOT_AVAILABLE, CONCURRENT, NOT_ENOUGH_REPLICAS = 88, 3, 15, 51, 19
PROTOCOLS = pytest.mark.parametrize("bumps", [False, True], ids=["version 1", "version 2"])
_names = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with running_broker(tmp_path_factory.mktemp("broker"), default_partitions=2) as broker:
        yield broker


@pytest.fixture
def topic(broker):
    name = f"topic-{next(_names)}"
    create(broker.port, name)
    return name


def create(port, topic):
    raw = RawProducer(port, "admin", bumps=False)
    wanted = {"name": topic, "num_partitions": 2, "replication_factor": 1, "configs": []}
    (answer,) = raw.request(Api.CREATE_TOPICS, 7, {"topics": [wanted]}).topics
    assert answer.error_code == 0
    raw.close()


@contextlib.contextmanager
def producing(broker, *, bumps, name=None, **settings):
    raw = RawProducer(broker.port, name or f"producer-{next(_names)}", bumps=bumps, **settings)
    raw.init()
    try:
        yield raw
    finally:
        raw.close()


def committed(broker, topic):
    """Every record of both partitions that a reader of committed records is given now."""
    bootstrap = f"127.0.0.1:{broker.port}"
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(topic, index, 0) for index in range(2)])
    values, ended = [], set()
    while len(ended) < 2:
        message = reader.poll(60)
        assert message is not None, "no end of the partitions within 60 s"
        if message.error():
            ended.add(message.partition())
        else:
            values.append(message.value())
    reader.close()
    return sorted(values)


def state(raw):
    fields = {"transactional_ids": [raw.name]}
    (found,) = raw.request(Api.DESCRIBE_TRANSACTIONS, 0, fields).transaction_states
    return found.transaction_state


def wait_for_state(raw, wanted):
    deadline = time.monotonic() + 60
    while state(raw) != wanted:
        assert time.monotonic() < deadline, f"{state(raw)}, not {wanted}, after 60 s"


def refused(code):
    return pytest.raises(Refused, match=f"code {code}$")


# --- what readers see ---------------------------------------------------------------------------


@PROTOCOLS
def test_records_are_seen_together_after_the_commit_and_never_after_an_abort(broker, topic, bumps):
    with producing(broker, bumps=bumps) as raw:
        for commit in (True, False, True):
            before = committed(broker, topic)
            raw.send(topic, 0, b"a%d" % commit)
            raw.send(topic, 1, b"b%d" % commit)
            assert committed(broker, topic) == before
            raw.end(commit=commit)
            wait_for_state(raw, "CompleteCommit" if commit else "CompleteAbort")
        assert committed(broker, topic) == [b"a1", b"a1", b"b1", b"b1"]


@PROTOCOLS
def test_a_transaction_goes_on_over_a_restart_of_the_broker(tmp_path, bumps):
    broker = BrokerProcess(tmp_path)
    with broker:
        create(broker.port, "t")
        with producing(broker, bumps=bumps) as raw:
            raw.send("t", 0, b"before")
            broker.kill()
            broker.start()
            raw.close()
            raw.send("t", 1, b"after")
            assert committed(broker, "t") == []
            raw.end(commit=True)
            wait_for_state(raw, "CompleteCommit")
            assert committed(broker, "t") == [b"after", b"before"]


# --- who may --------------------------------------------------------------------------------------


@PROTOCOLS
def test_a_newer_instance_aborts_and_fences_the_older_one(broker, topic, bumps):
    with producing(broker, bumps=bumps, name="zombie") as old:
        old.send(topic, 0, b"lost")
        with producing(broker, bumps=bumps, name="zombie") as new:
            with refused(INVALID_EPOCH):
                old.produce(topic, 0, b"late")
            with refused(FENCED):
                old.end(commit=True)
            with refused(FENCED):
                old.init(keep=True)
            new.send(topic, 0, b"kept")
            new.end(commit=True)
            wait_for_state(new, "CompleteCommit")
    assert committed(broker, topic) == [b"kept"]


@PROTOCOLS
def test_a_transaction_that_takes_too_long_is_aborted(broker, topic, bumps):
    with producing(broker, bumps=bumps, timeout_ms=8_000) as raw:
        raw.send(topic, 0, b"slow")
        wait_for_state(raw, "CompleteAbort")
        with refused(FENCED):
            raw.end(commit=True)
        raw.timeout_ms = 60_000  # the next one may take its time
        raw.init(keep=True)
        raw._added.clear()
        raw.send(topic, 0, b"quick")
        raw.end(commit=True)
        wait_for_state(raw, "CompleteCommit")
    assert committed(broker, topic) == [b"quick"]


def test_older_clients_must_say_beforehand_where_they_write(broker, topic):
    with producing(broker, bumps=False) as raw, refused(ABORTABLE):
        raw.produce(topic, 0, b"unannounced")


@pytest.mark.parametrize("internal", ["__consumer_offsets", "__transaction_state"])
def test_the_brokers_own_topics_take_part_in_no_transaction(broker, internal):
    with producing(broker, bumps=False) as raw, refused(UNKNOWN_PARTITION):
        raw.add(internal, 0)


def test_a_transactional_id_has_one_producer_id(broker, topic):
    with producing(broker, bumps=False) as raw:
        raw.producer_id += 1_000
        with refused(INVALID_MAPPING):
            raw.add(topic, 0)


def test_a_time_out_beyond_the_limit_is_refused(broker):
    raw = RawProducer(broker.port, "patient", bumps=True, timeout_ms=900_001)
    with refused(INVALID_TIMEOUT):
        raw.init()
    raw.close()


# --- ends that are repeated -----------------------------------------------------------------------


@PROTOCOLS
def test_a_repeated_end_gets_the_same_answer_also_after_a_restart(tmp_path, bumps):
    broker = BrokerProcess(tmp_path)
    with broker:
        create(broker.port, "t")
        with producing(broker, bumps=bumps) as raw:
            raw.send("t", 0, b"once")
            first = raw.claim
            raw.end(commit=True)
            after = raw.claim
            raw.repeat_end(first, commit=True)
            broker.kill()
            broker.start()
            raw.close()
            raw.repeat_end(first, commit=True)
            assert raw.claim == after
            wait_for_state(raw, "CompleteCommit")
            assert committed(broker, "t") == [b"once"]


def test_a_late_end_of_an_earlier_transaction_does_not_touch_a_later_one(broker, topic):
    with producing(broker, bumps=True) as raw:
        raw.send(topic, 0, b"first")
        first = raw.claim
        raw.end(commit=True)
        raw.send(topic, 0, b"second")
        with refused(FENCED):
            raw.repeat_end(first, commit=True)
        assert state(raw) == "Ongoing"
        raw.end(commit=False)
        wait_for_state(raw, "CompleteAbort")
    assert committed(broker, topic) == [b"first"]


def test_a_commit_that_overtakes_its_records_is_sent_away_once_and_then_commits_them(broker, topic):
    with producing(broker, bumps=True) as raw:
        for number in (0, 1):
            with refused(CONCURRENT):
                raw.end(commit=True)
            raw.send(topic, 0, b"r%d" % number)
            raw.end(commit=True)
            wait_for_state(raw, "CompleteCommit")
        with refused(CONCURRENT):
            raw.end(commit=True)
        with refused(INVALID_STATE):
            raw.end(commit=True)
        wait_for_state(raw, "CompleteCommit")
    assert committed(broker, topic) == [b"r0", b"r1"]


@PROTOCOLS
def test_on_a_full_disk_nothing_is_decided_and_the_end_succeeds_when_there_is_room(bumps):
    disk = SimulatedDisk()
    with running_broker(Path("/data"), disk=disk) as broker:
        create(broker.port, "t")
        with producing(broker, bumps=bumps) as raw:
            raw.send("t", 0, b"kept")
            raw.send_offset("g", "t", 0, 3)
            disk.capacity_bytes = disk.used_bytes()
            with refused(NOT_AVAILABLE):
                raw.end(commit=True)
            assert committed(broker, "t") == []
            disk.capacity_bytes = None
            end_when_available(raw)
            wait_for_state(raw, "CompleteCommit")
            assert fetched(raw, "g", "t") == (0, 3)
        assert committed(broker, "t") == [b"kept"]


@PROTOCOLS
def test_while_transactions_are_unavailable_producers_are_told_what_they_retry(bumps):
    disk = SimulatedDisk()
    with running_broker(Path("/data"), disk=disk) as broker:
        create(broker.port, "t")
        with producing(broker, bumps=bumps) as raw:
            raw.send("t", 0, b"kept")
            disk.failing_syncs = 1
            with refused(NOT_AVAILABLE):
                raw.end(commit=True)
            with refused(NOT_ENOUGH_REPLICAS):
                raw.produce("t", 0, b"later")


def end_when_available(raw):
    deadline = time.monotonic() + 60
    while True:
        try:
            return raw.end(commit=True)
        except Refused as error:
            assert error.code == NOT_AVAILABLE and time.monotonic() < deadline, error


# --- offsets --------------------------------------------------------------------------------------


def fetched(raw, group, topic, *, stable=True):
    asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
    answer = raw.request(Api.OFFSET_FETCH, 8, {"groups": [asked], "require_stable": stable})
    found = answer.groups[0].topics[0].partitions[0]
    return found.error_code, found.committed_offset


@PROTOCOLS
def test_offsets_count_with_the_commit_and_are_unstable_before(broker, topic, bumps):
    with producing(broker, bumps=bumps) as raw:
        group = f"group-{raw.name}"
        raw.send_offset(group, topic, 0, 5)
        assert fetched(raw, group, topic) == (UNSTABLE, -1)
        assert fetched(raw, group, topic, stable=False) == (0, -1)
        raw.end(commit=True)
        assert fetched(raw, group, topic) == (0, 5)
        raw.send_offset(group, topic, 0, 9)
        raw.end(commit=False)
        assert fetched(raw, group, topic) == (0, 5)


@PROTOCOLS
def test_offsets_follow_their_transaction_over_a_restart(tmp_path, bumps):
    broker = BrokerProcess(tmp_path)
    with broker:
        create(broker.port, "t")
        with producing(broker, bumps=bumps) as raw:
            raw.send_offset("g", "t", 0, 7)
            broker.kill()
            broker.start()
            raw.close()
            assert fetched(raw, "g", "t") == (UNSTABLE, -1)
            raw.end(commit=True)
            assert fetched(raw, "g", "t") == (0, 7)


@PROTOCOLS
def test_offsets_for_a_member_that_is_not_there_are_refused(broker, topic, bumps):
    with producing(broker, bumps=bumps) as raw, refused(22):
        raw.send_offset("nobody", topic, 0, 1, member_id="gone", generation_id=4)


# --- forgetting -----------------------------------------------------------------------------------


def test_transactional_ids_are_forgotten_for_good_when_they_were_not_used_for_long(tmp_path):
    settings = BrokerSettings(data=str(tmp_path), listen="127.0.0.1:0")
    patience = GroupSettings(transactional_id_expiration_ms=1)

    async def life():
        async with Broker(settings, group_settings=patience).serving() as broker:
            await broker.services.transactions.initialize(InitRequest(transactional_id="t", timeout_ms=100))
            assert await broker.services.transactions.producers()
            while await broker.services.transactions.producers():  # until the clock has moved on
                broker.services.transactions._store.forget_expired()
        async with Broker(settings).serving() as broker:
            assert not await broker.services.transactions.producers()

    asyncio.run(asyncio.wait_for(life(), 60))


# --- real clients ---------------------------------------------------------------------------------


def librdkafka(broker, name):
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{broker.port}", "transactional.id": name})
    producer.init_transactions(20)
    return producer


def test_librdkafka_commits_aborts_and_sends_offsets(broker, topic):
    producer = librdkafka(broker, "rd")
    reader = Consumer({"bootstrap.servers": f"127.0.0.1:{broker.port}", "group.id": "rd-group"})
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, b"a%d" % number, partition=0)
        producer.produce(topic, b"b%d" % number, partition=1)
        at = [TopicPartition(topic, 0, 10 + number)]
        producer.send_offsets_to_transaction(at, reader.consumer_group_metadata(), 20)
        producer.flush(20)
        (producer.commit_transaction if number % 2 == 0 else producer.abort_transaction)(20)
    assert reader.committed([TopicPartition(topic, 0)], 20)[0].offset == 12
    reader.close()
    wait_for_state(RawProducer(broker.port, "rd", bumps=False), "CompleteAbort")
    assert committed(broker, topic) == [b"a0", b"a2", b"b0", b"b2"]


def test_a_librdkafka_zombie_is_told_that_it_is_fenced(broker, topic):
    old = librdkafka(broker, "rd-zombie")
    old.begin_transaction()
    old.produce(topic, b"lost", partition=0)
    old.flush(20)
    librdkafka(broker, "rd-zombie")
    with pytest.raises(KafkaException, match="_FENCED"):
        old.commit_transaction(20)
    assert committed(broker, topic) == []


def test_aiokafka_commits_and_aborts(broker, topic):
    from aiokafka import AIOKafkaProducer

    async def life():
        bootstrap = f"127.0.0.1:{broker.port}"
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="aio") as producer:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"kept", partition=0)
                await producer.send_and_wait(topic, b"kept", partition=1)
            with contextlib.suppress(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"lost", partition=0)
                    1 / 0  # noqa: B018 - the application fails

    asyncio.run(life())
    wait_for_state(RawProducer(broker.port, "aio", bumps=False), "CompleteAbort")
    assert committed(broker, topic) == [b"kept", b"kept"]


def test_java_lives_by_the_second_version_of_the_protocol(broker):
    try:
        command = java_command("TransactionLife")
    except ClientUnavailable as why:
        pytest.skip(str(why))
    done = subprocess.run([*command, f"127.0.0.1:{broker.port}"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    told = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert told["committed"] == "[a0, a2, a4, b0, b2, b4]"
    assert told["offset"] == "3"
    assert told["zombie"] == "ProducerFencedException"
    assert told["survived"] == "[kept]"
    assert told["many"] == "200"
    assert told["described"] == "CompleteCommit"
    raw = RawProducer(broker.port, "java-many", bumps=True)
    fields = {"transactional_ids": ["java-many"]}
    (found,) = raw.request(Api.DESCRIBE_TRANSACTIONS, 0, fields).transaction_states
    assert found.producer_epoch == 201, "an epoch for each transaction"
    raw.close()
