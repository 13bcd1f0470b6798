"""A request that is known by its bytes is answered as if it had never been asked before."""

import contextlib
import os
import random
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.broker.apis.records.fetch_attempt import Attempt
from headrace.broker.apis.records.produce import Produce
from headrace.broker.connection.follower import Follower, WatchedPartition
from headrace.broker.connection.lane import Lane
from headrace.testing.batches import batches_in
from headrace.testing.broker import BrokerProcess, running_broker
from headrace.wire import Api, ErrorCode, encode_request

from .conftest import NOW_MS, Peer, batch_of, produce_fields
from .test_produce_and_fetch import values_in, wait_for_reader

PARTITIONS = 3
LONGER_THAN_WE_DO_MS = 60_000


def answer_to(peer: Peer, frame: bytes) -> bytes:
    """The answer without its size and correlation id."""
    peer.socket.sendall(frame)
    return next_answer(peer)


def next_answer(peer: Peer) -> bytes:
    size = int.from_bytes(received(peer, 4), "big")
    return received(peer, size)[4:]


def received(peer: Peer, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += peer.socket.recv(size - len(data)) or pytest.fail("the broker closed the connection")
    return data


def fetch_frame(
    topic, offsets, number, *, version=16, wait_ms=0, committed=False, most_bytes=1 << 20
) -> bytes:
    """From these offsets, by partition, in this order; topics are named by id since version 13."""
    parts = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": most_bytes}
        for index, offset in offsets.items()
    ]
    fields = {
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": int(committed),
        "session_epoch": -1,
        "topics": [{"topic": topic.name, "topic_id": topic.id, "partitions": parts}],
    }
    return bytes(encode_request(Api.FETCH, version, number, "peer", fields))


def produce_frame(topic, batch, number, *, partition=0, acks=-1, version=10) -> bytes:
    fields = produce_fields(topic.name, bytes(batch), partition, acks)
    fields["topic_data"][0]["topic_id"] = topic.id
    return bytes(encode_request(Api.PRODUCE, version, number, "peer", fields))


@pytest.fixture
def counted(monkeypatch) -> dict[str, int]:
    """How often a request was known by its bytes."""
    times = {"fetch": 0, "produce": 0, "lane": 0}
    parts_of, take = Produce.parts_of, Lane.take

    def counting(call):
        def counted(*args):
            known = call(*args)
            times["fetch"] += known
            return known

        return counted

    def counted_produce(*args):
        parts = parts_of(*args)
        times["produce"] += parts is not None
        return parts

    def counted_lane(*args):
        left = take(*args)
        times["lane"] += left is not None
        return left

    monkeypatch.setattr(Attempt, "is_same_again", counting(Attempt.is_same_again))
    monkeypatch.setattr(Follower, "takes_up", counting(Follower.takes_up))
    monkeypatch.setattr(Produce, "parts_of", counted_produce)
    monkeypatch.setattr(Lane, "take", counted_lane)
    return times


@pytest.fixture
def told(monkeypatch) -> dict[str, int]:
    """How often a reader was told what it had missed."""
    times, answer_missed = {"missed": 0}, Follower.answer_missed

    def counted(follower):
        times["missed"] += follower._missed is not None
        answer_missed(follower)

    monkeypatch.setattr(Follower, "answer_missed", counted)
    return times


@pytest.fixture
def at_once(monkeypatch) -> dict[str, Any]:
    """`also`, once, is done in the moment in which a batch is about to go its lane; how many were put off."""
    take = Lane.take
    seen: dict[str, Any] = {"put off": 0, "also": None}

    def disturbed(lane, frame, address):
        also, seen["also"] = seen["also"], None
        if also is not None:
            also()
        left = take(lane, frame, address)
        seen["put off"] += left is None and lane.is_early
        return left

    monkeypatch.setattr(Lane, "take", disturbed)
    return seen


@pytest.mark.parametrize("version", [12, 16])
@pytest.mark.parametrize("seed", range(4))
def test_fetches_on_an_old_and_on_a_new_connection_have_the_same_answers(broker, counted, seed, version):
    draw = random.Random(seed)
    with connections(broker, 2) as (writer, reader):
        topic = made(broker, writer, f"same-{version}-{seed}", PARTITIONS)
        for number in range(60):
            for index in draw.sample(range(PARTITIONS), draw.randint(0, 2)):
                writer.produce(topic.name, batch_of(b"%d" % number), partition=index)
            if draw.random() < 0.1:
                writer.request(Api.DELETE_RECORDS, 2, deletion(topic, 0, draw.randint(0, 1)))
            ends = [partition.high_watermark for partition in topic.partitions]
            order = draw.sample(range(PARTITIONS), PARTITIONS)
            offsets = {index: max(0, ends[index] - draw.choice((-1, 0, 0, 0, 1, 5))) for index in order}
            about = {"version": version, "committed": draw.random() < 0.3}
            frame = fetch_frame(topic, offsets, number, **about)
            with connections(broker, 1) as (fresh,):
                assert answer_to(reader, frame) == answer_to(fresh, frame), f"seed {seed}, {offsets}"
    assert counted["fetch"] >= 10


def test_a_reader_who_waits_gets_from_memory_what_another_reads_from_the_file(broker, counted):
    with connections(broker, 3) as (writer, first, second):
        topic = made(broker, writer, "from-memory", 1)
        batches = [batch_of(bytes(5000 - 1000 * number)) for number in range(5)]  # each smaller than the last
        for offset, batch in enumerate(batches):
            for each in (first, second):
                each.socket.sendall(fetch_frame(topic, {0: offset}, offset, wait_ms=LONGER_THAN_WE_DO_MS))
            wait_for_readers(broker, topic.name, 2)
            writer.produce(topic.name, batch)
            with connections(broker, 1) as (fresh,):
                later = answer_to(fresh, fetch_frame(topic, {0: offset}, 1))
            assert next_answer(first) == next_answer(second) == later
    assert counted["fetch"] == 8
    partition = broker.services.topics.partition(topic.name, 0)
    wait_until(lambda: partition.fetched_records == 15)  # an answer is counted once it is sent
    assert partition.fetched_bytes == 3 * sum(map(len, batches))


@pytest.mark.parametrize("version", [12, 16])
@pytest.mark.parametrize("committed", [False, True])
def test_a_batch_on_its_lane_is_answered_to_both_as_on_the_general_way(broker, counted, version, committed):
    about = {"version": version, "committed": committed}
    with connections(broker, 2) as (writer, reader):
        topic = made(broker, writer, f"lane-{version}-{committed}", PARTITIONS)
        ends = [0] * PARTITIONS
        for number in range(1000):  # a slow disk, or a chore of the log, bars the lane for a while
            if counted["lane"] >= 8:
                break
            order = [(number + place) % PARTITIONS for place in range(PARTITIONS)]
            offsets, index = {place: ends[place] for place in order}, number * 2 % PARTITIONS
            waits = fetch_frame(topic, offsets, number, wait_ms=LONGER_THAN_WE_DO_MS, **about)
            reader.socket.sendall(waits)
            wait_until(lambda: is_waiting(broker, topic.name))
            batch = batch_of(*[b"%d" % n for n in range(number % 9 + 1)])
            accepted = answer_to(writer, produce_frame(topic, batch, number, partition=index))
            assert error_of_produce(accepted) == 0
            assert int.from_bytes(accepted[-33:-25], "big") == ends[index]
            with connections(broker, 1) as (fresh,):
                assert next_answer(reader) == answer_to(fresh, fetch_frame(topic, offsets, 1, **about))
            ends[index] += number % 9 + 1
    assert counted["lane"] == 8
    assert counted["fetch"] >= 8
    found = [broker.services.topics.partition(topic.name, index) for index in range(PARTITIONS)]
    assert [partition.produced_records for partition in found] == ends
    wait_until(lambda: [partition.fetched_records for partition in found] == [2 * end for end in ends])


@pytest.mark.parametrize(
    "config",
    [
        {"message_timestamp_type": "LogAppendTime"},
        {"cleanup_policy": "compact"},
        {"headrace_overload": "block"},
        {"max_message_bytes": 100},
        {"message_timestamp_before_max_ms": 1000},
    ],
    ids=lambda config: next(iter(config)),
)
def test_what_needs_a_look_takes_no_lane(broker, counted, config):
    with connections(broker, 2) as (old, fresh):
        old.create("look-" + next(iter(config)).replace("_", "-"), 1, **config)
        topic = broker.services.topics.named("look-" + next(iter(config)).replace("_", "-"))
        for number in range(3):
            batch = batch_of(bytes(100), timestamp_ms=NOW_MS - 3_600_000)
            found = answer_to(old, produce_frame(topic, batch, number))
            expected = answer_to(fresh, produce_frame(topic, batch, number))
            assert error_of_produce(found) == error_of_produce(expected)
    assert counted["lane"] == 0


def test_a_reader_whose_time_is_over_is_told_so_again_and_again(broker, counted):
    with connections(broker, 2) as (writer, reader):
        topic = made(broker, writer, "nothing", PARTITIONS)
        expected = answer_to(writer, fetch_frame(topic, dict.fromkeys(range(PARTITIONS), 0), 1))
        for number in range(4):
            began = time.monotonic()
            frame = fetch_frame(topic, dict.fromkeys(range(PARTITIONS), 0), number, wait_ms=150)
            assert answer_to(reader, frame) == expected
            assert time.monotonic() - began > 0.14
    assert counted["fetch"] == 3


@pytest.mark.parametrize("committed", [False, True])
def test_a_reader_who_kept_up_and_goes_back_is_answered_at_once(broker, counted, committed):
    with connections(broker, 2) as (writer, reader):
        topic = made(broker, writer, f"back-{committed}", 1)
        about = {"wait_ms": LONGER_THAN_WE_DO_MS, "committed": committed}
        for number in range(3):
            reader.socket.sendall(fetch_frame(topic, {0: number}, number, **about))
            wait_until(lambda: is_waiting(broker, topic.name))
            writer.produce(topic.name, batch_of(b"%d" % number))
            next_answer(reader)
        assert counted["fetch"] >= 2
        for offset in (2, 0, 1):
            with connections(broker, 1) as (fresh,):
                expected = answer_to(fresh, fetch_frame(topic, {0: offset}, 9, committed=committed))
            assert answer_to(reader, fetch_frame(topic, {0: offset}, 9, **about)) == expected


def test_a_reader_who_keeps_up_gets_what_is_too_much_for_the_short_way(broker, counted):
    with connections(broker, 2) as (writer, reader):
        topic = made(broker, writer, "too-much", 1)
        for number in range(4):
            frame = fetch_frame(topic, {0: number}, number, wait_ms=LONGER_THAN_WE_DO_MS)
            reader.socket.sendall(frame)
            wait_until(lambda: is_waiting(broker, topic.name))
            assert (
                error_of_produce(answer_to(writer, produce_frame(topic, batch_of(bytes(50_000)), number)))
                == 0
            )
            stored = broker.services.topics.partition(topic.name, 0).log.read(number, 1 << 20)
            assert len(stored) > 50_000
            assert stored in next_answer(reader)
    assert counted["fetch"] >= 3
    assert counted["lane"] == 0


def test_a_reader_who_asks_no_more_bars_no_lane(broker, counted):
    with connections(broker, 3) as (writer, first, second):
        topic, sent = made(broker, writer, "no-more", 1), 0
        for reader in (first, second):
            kept_up = counted["fetch"]
            while (
                counted["fetch"] < kept_up + 2
            ):  # the other one, if it came before, has an answer and is silent
                reader.socket.sendall(fetch_frame(topic, {0: sent}, sent, wait_ms=LONGER_THAN_WE_DO_MS))
                wait_until(lambda: is_waiting(broker, topic.name))
                assert error_of_produce(answer_to(writer, produce_frame(topic, batch_of(b"x"), sent))) == 0
                next_answer(reader)
                sent += 1
        assert len(broker.services.topics.partition(topic.name, 0).readers) == 2
        before, limit = counted["lane"], sent + 1000
        while counted["lane"] < before + 2:
            assert sent < limit
            reader.socket.sendall(fetch_frame(topic, {0: sent}, sent, wait_ms=LONGER_THAN_WE_DO_MS))
            wait_until(lambda: is_waiting(broker, topic.name))
            assert error_of_produce(answer_to(writer, produce_frame(topic, batch_of(b"x"), sent))) == 0
            with connections(broker, 1) as (fresh,):
                assert next_answer(reader) == answer_to(fresh, fetch_frame(topic, {0: sent}, 1))
            sent += 1
        with connections(broker, 1) as (fresh,):
            frame = fetch_frame(topic, {0: sent - 1}, 1, wait_ms=LONGER_THAN_WE_DO_MS)
            assert answer_to(first, frame) == answer_to(fresh, frame)


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("way", ["lane", "general"])
def test_a_reader_who_asks_again_too_late_gets_what_it_missed_from_memory(broker, told, way, committed):
    about = {"committed": committed, "wait_ms": LONGER_THAN_WE_DO_MS}
    with connections(broker, 2) as (writer, reader):
        topic = made(broker, writer, f"missed-{way}-{committed}", PARTITIONS)
        ends = kept_up(broker, topic, writer, reader, committed=committed)
        for number in range(3, 60):
            index, records = number % PARTITIONS, number % 4 + 1
            batch = batch_of(*[b"%d" % n for n in range(records)])
            if way == "lane":
                accepted = answer_to(writer, produce_frame(topic, batch, number, partition=index))
                assert error_of_produce(accepted) == 0
            else:
                with connections(broker, 1) as (other,):  # whose first request takes no lane
                    other.produce(topic.name, batch, partition=index)
            offsets = dict(enumerate(ends))
            with connections(broker, 1) as (fresh,):
                expected = answer_to(fresh, fetch_frame(topic, offsets, number, **about))
            assert answer_to(reader, fetch_frame(topic, offsets, number, **about)) == expected
            ends[index] += records
    assert told["missed"] == 57


def test_what_was_missed_is_no_answer_to_another_question(broker, told):
    with connections(broker, 2) as (writer, reader):
        topic = made(broker, writer, "other-question", PARTITIONS)
        ends = kept_up(broker, topic, writer, reader)

        def missed(*indexes):
            for index in indexes:
                writer.produce(topic.name, batch_of(b"of %d" % index), partition=index)

        def asks(offsets):
            frame = fetch_frame(topic, offsets, 1, wait_ms=LONGER_THAN_WE_DO_MS)
            with connections(broker, 1) as (fresh,):
                assert answer_to(reader, frame) == answer_to(fresh, frame), offsets

        assert ends == [1, 1, 1]
        missed(0, 1)  # one of each, and the same offset in both
        asks({0: 1, 1: 1, 2: 1})
        missed(0, 0)  # two of one partition
        asks({0: 2, 1: 2, 2: 1})
        missed(2)  # but it goes back
        asks({0: 3, 1: 2, 2: 1})
        missed(1)
        writer.request(Api.DELETE_RECORDS, 2, deletion(topic, 1, 3))  # what it missed is deleted
        asks({0: 4, 1: 2, 2: 2})
    assert told["missed"] == 0


def test_a_batch_that_comes_with_its_readers_request_goes_its_lane_behind_that(broker, counted, at_once):
    with connections(broker, 2) as (writer, reader):
        topic = made(broker, writer, "together", PARTITIONS)
        ends, went = kept_up(broker, topic, writer, reader), 0
        for number in range(3, 300):  # a slow disk, or a chore of the log, bars the lane for a while
            if went == 8:
                break
            offsets, index = dict(enumerate(ends)), number % PARTITIONS
            asks = fetch_frame(topic, offsets, number, wait_ms=LONGER_THAN_WE_DO_MS)
            at_once["also"] = lambda: reader.socket.sendall(asks)  # noqa: B023 - called in this round
            lanes, tries = counted["lane"], at_once["put off"]
            accepted = answer_to(
                writer, produce_frame(topic, batch_of(b"%d" % number), number, partition=index)
            )
            assert int.from_bytes(accepted[-33:-25], "big") == ends[index]
            with connections(broker, 1) as (fresh,):
                assert next_answer(reader) == answer_to(fresh, fetch_frame(topic, offsets, 1))
            went += at_once["put off"] > tries and counted["lane"] > lanes
            ends[index] += 1
    assert went == 8


def test_what_comes_behind_a_batch_that_is_put_off_is_served_behind_it(broker, counted, at_once):
    with connections(broker, 2) as (writer, reader):
        topic = made(broker, writer, "behind", 1)
        ends, expected = kept_up(broker, topic, writer, reader), []
        for number in range(300):
            if at_once["put off"] >= 8:
                break
            first, second = batch_of(b"%d" % number), batch_of(b"behind %d" % number)

            def also(number=number, second=second):
                writer.socket.sendall(produce_frame(topic, second, number))
                reader.socket.sendall(fetch_frame(topic, {0: ends[0]}, 1, wait_ms=LONGER_THAN_WE_DO_MS))

            at_once["also"] = also
            answers = answer_to(writer, produce_frame(topic, first, number)), next_answer(writer)
            assert [int.from_bytes(each[-33:-25], "big") for each in answers] == [ends[0], ends[0] + 1]
            next_answer(reader)
            ends[0] += 2
            expected += [b"%d" % number, b"behind %d" % number]
    assert at_once["put off"] >= 8
    assert values_in_all(broker, topic.name)[3:] == expected


def test_a_producer_who_leaves_while_its_batch_is_put_off_harms_nobody(broker, at_once):
    with connections(broker, 2) as (writer, reader):
        topic = made(broker, writer, "leaves", 1)
        (end,) = kept_up(broker, topic, writer, reader)
        for number in range(300):
            if at_once["put off"] >= 3:
                break
            with connections(broker, 1) as (leaver,):
                for _ in range(2):
                    assert (
                        error_of_produce(answer_to(leaver, produce_frame(topic, batch_of(b"x"), number))) == 0
                    )
                asks = fetch_frame(topic, {0: end}, number, wait_ms=0)

                def also(leaver=leaver, asks=asks):
                    leaver.socket.shutdown(socket.SHUT_RDWR)
                    reader.socket.sendall(asks)

                at_once["also"] = also
                leaver.socket.sendall(produce_frame(topic, batch_of(b"lost or not"), number))
                next_answer(reader)
            end = broker.services.topics.partition(topic.name, 0).log.high_watermark
        assert at_once["put off"] >= 3
        assert error_of_produce(answer_to(writer, produce_frame(topic, batch_of(b"last"), 1))) == 0


def test_a_reader_who_left_is_told_of_nothing(broker):
    with connections(broker, 1) as (writer,):
        topic = made(broker, writer, "left", 1)
        with connections(broker, 1) as (reader,):
            for number in range(3):
                reader.socket.sendall(fetch_frame(topic, {0: number}, number, wait_ms=LONGER_THAN_WE_DO_MS))
                wait_until(lambda: is_waiting(broker, topic.name))
                writer.produce(topic.name, batch_of(b"x"))
                next_answer(reader)
            reader.socket.sendall(fetch_frame(topic, {0: 3}, 3, wait_ms=LONGER_THAN_WE_DO_MS))
            wait_until(lambda: is_waiting(broker, topic.name))
        wait_until(lambda: not broker.services.topics.partition(topic.name, 0).readers)
        for number in range(3):
            assert error_of_produce(answer_to(writer, produce_frame(topic, batch_of(b"y"), number))) == 0
    assert values_in_all(broker, topic.name) == [b"x"] * 3 + [b"y"] * 3


@pytest.mark.parametrize(("device", "is_full"), [("/dev/full", True), ("/dev/null", False)])
def test_what_the_disk_refuses_on_the_lane_is_refused_as_ever(tmp_path, counted, device, is_full):
    with running_broker(tmp_path) as broker, connections(broker, 2) as (writer, reader):
        topic = made(broker, writer, "t", 1)
        sent = 0
        while counted["lane"] < 2:  # not while a chore of the log is under way, or the disk was slow
            assert sent < 1000
            frame = produce_frame(topic, batch_of(b"%d" % sent), sent)
            assert error_of_produce(answer_to(writer, frame)) == 0
            sent += 1
        log = broker.services.topics.partition("t", 0).log
        kept = os.dup(fd := log._writer.active.file.fd)
        os.dup2(os.open(device, os.O_RDWR), fd)  # takes no bytes; or takes them, and cannot be synced
        try:
            for number in range(2):
                refused = answer_to(writer, produce_frame(topic, batch_of(b"lost"), number))
                assert error_of_produce(refused) == ErrorCode.kafka_storage_error
            assert (log.high_watermark, log.failed is None) == (sent, is_full)
        finally:
            os.dup2(kept, fd)
        later = error_of_produce(answer_to(writer, produce_frame(topic, batch_of(b"later"), 9)))
        assert later == (0 if is_full else ErrorCode.kafka_storage_error)
        kept_values = [b"%d" % number for number in range(sent)] + [b"later"] * is_full
        assert values_in(reader.fetch("t", 0)) == kept_values


@pytest.mark.parametrize(("most_bytes", "values"), [(1 << 20, [b"a", b"b"]), (1, [b"a"])])
def test_a_reader_who_waits_gets_no_more_from_memory_than_it_asked_for(broker, most_bytes, values):
    with connections(broker, 2) as (writer, reader):
        topic = made(broker, writer, f"at-most-{most_bytes}", 1)
        frame = fetch_frame(topic, {0: 0}, 1, wait_ms=LONGER_THAN_WE_DO_MS, most_bytes=most_bytes)
        reader.socket.sendall(frame)
        wait_for_reader(broker, topic.name)
        # In one piece, so that they share a commit.
        writer.socket.sendall(
            produce_frame(topic, batch_of(b"a"), 1) + produce_frame(topic, batch_of(b"b"), 2)
        )
        octets = next_answer(reader)
        stored = broker.services.topics.partition(topic.name, 0).log.read(0, 1 << 20)
        sizes = [header.size_bytes for _, header in batches_in(stored)][: len(values)]
        assert stored[: sum(sizes)] in octets
        assert len(octets) < sum(sizes) + 100


def test_a_topic_that_was_made_anew_is_not_taken_for_the_old_one(broker):
    with connections(broker, 2) as (writer, reader):
        old = made(broker, writer, "anew", 1)
        for number in range(3):
            assert error_of_produce(answer_to(writer, produce_frame(old, batch_of(b"old"), number))) == 0
            answer_to(reader, fetch_frame(old, {0: number}, number, version=12))
        writer.request(Api.DELETE_TOPICS, 5, {"topic_names": [old.name], "timeout": 10_000})
        gone = answer_to(reader, fetch_frame(old, {0: 0}, 4, version=12))
        with connections(broker, 1) as (fresh,):
            assert gone == answer_to(fresh, fetch_frame(old, {0: 0}, 4, version=12))
        assert (
            error_of_produce(answer_to(writer, produce_frame(old, batch_of(b"x"), 5))) == 3
        )  # unknown topic
        new = made(broker, writer, "anew", 1)
        assert error_of_produce(answer_to(writer, produce_frame(new, batch_of(b"new"), 6))) == 0
        assert values_in(reader.fetch("anew", 0)) == [b"new"]


def test_what_is_wrong_with_a_batch_is_said_also_when_the_request_is_known(broker, counted):
    with connections(broker, 1) as (old,):
        topic = made(broker, old, "wrong", 1)
        good, damaged = bytes(batch_of(b"x")), bytearray(batch_of(b"x"))
        damaged[-1] ^= 1
        cases = [(good, 0, -1), (bytes(damaged), 0, -1), (good, 7, -1), (b"", 0, -1), (bytes(70), 0, -1)]
        cases += [(bytes(batch_of(bytes(2_000_000))), 0, -1), (good, 0, 5), (good, 0, 5), (good, 0, 1)]
        for number, (batch, partition, acks) in enumerate(cases):
            about = {"partition": partition, "acks": acks}
            with connections(broker, 1) as (fresh,):
                expected = answer_to(fresh, produce_frame(topic, batch, number, **about))
            found = answer_to(old, produce_frame(topic, batch, number, **about))
            assert error_of_produce(found) == error_of_produce(expected)
            if error_of_produce(expected):
                assert found == expected
    assert counted["produce"] >= 5
    assert values_in_all(broker, topic.name) == [b"x"] * 4


def test_who_wants_no_answer_gets_none_again_and_again(broker):
    with connections(broker, 1) as (peer,):
        topic = made(broker, peer, "no-answer", 1)
        for number in range(3):
            peer.socket.sendall(produce_frame(topic, batch_of(b"%d" % number), number, acks=0))
        assert error_of_produce(answer_to(peer, produce_frame(topic, batch_of(b"3"), 3))) == 0
    assert values_in_all(broker, topic.name) == [b"0", b"1", b"2", b"3"]


def test_what_only_the_broker_writes_is_refused_again_and_again(broker):
    with connections(broker, 1) as (peer,):
        peer.request(Api.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
        peer.request(
            Api.OFFSET_COMMIT,
            8,
            {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": []},
        )
        topic = broker.services.topics.named("__consumer_offsets")
        assert topic is not None
        for number in range(3):
            found = answer_to(peer, produce_frame(topic, batch_of(b"forged"), number))
            assert error_of_produce(found) == 17  # no valid topic


def test_producers_that_send_together_share_syncs_and_one_that_is_alone_is_answered(tmp_path):
    with BrokerProcess(tmp_path) as process:
        port = int(process.bootstrap.split(":")[1])
        peers = [Peer(port) for _ in range(8)]
        peers[0].create("t")
        frames = [
            bytes(encode_request(Api.PRODUCE, 9, 1, "peer", produce_fields("t", bytes(batch_of(b"%d" % n)))))
            for n in range(len(peers))
        ]
        rounds = 50
        for _ in range(rounds):
            for peer, frame in zip(peers, frames, strict=True):
                peer.socket.sendall(frame)
            for peer in peers:
                assert error_of_produce(next_answer(peer), version=9) == 0
        for _ in range(rounds):
            assert error_of_produce(answer_to(peers[0], frames[0]), version=9) == 0
        offset = 0
        found: list[bytes] = []
        while len(found) < rounds * 9:
            found += (more := values_in(peers[1].fetch("t", offset)))
            offset += len(more)
        assert sorted(found) == sorted([b"%d" % n for n in range(8)] * rounds + [b"0"] * rounds)
        for peer in peers:
            peer.close()


# --- words ------------------------------------------------------------------------------------


@contextlib.contextmanager
def connections(broker, count) -> Iterator[list[Peer]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(Peer(broker.port))) for _ in range(count)]


def kept_up(broker, topic, writer, reader, *, committed=False):
    """Has the reader wait for records and get them three times, so that it is known; the partitions' ends."""
    count = len(topic.partitions)
    ends = [0] * count
    for number in range(3):
        about = {"wait_ms": LONGER_THAN_WE_DO_MS, "committed": committed}
        reader.socket.sendall(fetch_frame(topic, dict(enumerate(ends)), number, **about))
        wait_until(lambda: is_waiting(broker, topic.name))
        index = number % count
        assert (
            error_of_produce(answer_to(writer, produce_frame(topic, batch_of(b"x"), 1, partition=index))) == 0
        )
        next_answer(reader)
        ends[index] += 1
    return ends


def made(broker, peer, name, partitions):
    peer.create(name, partitions)
    return broker.services.topics.named(name)


def deletion(topic, partition, offset):
    return {
        "topics": [{"name": topic.name, "partitions": [{"partition_index": partition, "offset": offset}]}],
        "timeout": 10_000,
    }


def wait_for_readers(broker, topic, count):
    wait_for_reader(broker, topic)
    partition = broker.services.topics.partition(topic, 0)
    wait_until(lambda: sum(map(is_one_that_waits, tuple(partition.readers))) == count)


def is_waiting(broker, topic):
    """Whether somebody waits for records of partition 0, in whichever way."""
    return any(map(is_one_that_waits, tuple(broker.services.topics.partition(topic, 0).readers)))


def is_one_that_waits(reader):
    return not isinstance(reader, WatchedPartition) or reader.follower.waits


def wait_until(is_so):
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.005)


def error_of_produce(answer: bytes, *, version: int = 10) -> int:
    """The error code of the only partition of the only topic, in what `answer_to` gives."""
    assert version in (9, 10)
    name_end = 1 + 1 + 1 + answer[2] - 1
    return int.from_bytes(answer[name_end + 1 + 4 : name_end + 1 + 6], "big")


def values_in_all(broker, topic):
    with connections(broker, 1) as (reader,):
        return values_in(reader.fetch(topic, 0))
