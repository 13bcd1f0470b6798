"""A request that is known by its shape is the one that the codec reads, and so is its answer."""

import random
import struct
import uuid
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptionError, RequestError
from headrace.kernels.requests import ROOM_BYTES, STANDING_FIELDS
from headrace.kernels.shared_library import address_of
from headrace.records import Record, check_batch, encode_batch, read_header
from headrace.records.batch import seal
from headrace.wire import Api, MalformedError, Request, decode_request, encode_request, encode_response
from headrace.wire import versions_of as versions
from headrace.wire.repeated_requests import FetchShape, ProduceShape

PRODUCE, FETCH = ([*range(first, versions(api).highest + 1)] for api, first in ((0, 9), (1, 12)))
int8, int16, int32, int64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64))
names = st.text(min_size=1, max_size=8)
topics = st.fixed_dictionaries({"topic_id": st.uuids(), "name": names})
indexes = st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True)
records = st.binary(max_size=300)


def request_of(api: Api, version: int, correlation_id: int, client: str, fields: dict[str, Any]) -> bytearray:
    return bytearray(encode_request(api, version, correlation_id, client, fields)[4:])


def read(api: Api, version: int, frame: bytearray) -> Request | None:
    try:
        return decode_request(frame, api, version)
    except MalformedError:
        return None


def damaged(frame: bytearray, draw: random.Random) -> bytearray:
    """With another byte somewhere behind API and version, and perhaps without its end."""
    message = bytearray(frame)
    message[draw.randrange(4, len(message))] = draw.randrange(256)
    return message[: draw.randrange(9, len(message) + 1)] if draw.random() < 0.3 else message


# --- produce ----------------------------------------------------------------------------------

about_produce = st.fixed_dictionaries({"acks": int16, "timeout": int32})
batches = st.lists(st.fixed_dictionaries({"index": int32, "records": records}), min_size=1, max_size=4)


def produce_request(
    topic: dict[str, Any], about: dict[str, int], parts: list[dict[str, Any]]
) -> dict[str, Any]:
    return {**about, "topic_data": [{**topic, "partition_data": parts}]}


@pytest.mark.parametrize("version", PRODUCE)
@given(topics, about_produce, batches, batches, names, int32, st.integers(0, 2**32))
def test_the_next_produce_request_is_read_alike(
    version: int,
    topic: dict[str, Any],
    about: dict[str, int],
    first: list[dict[str, Any]],
    following: list[dict[str, Any]],
    client: str,
    correlation_id: int,
    seed: int,
) -> None:
    frame = request_of(Api.PRODUCE, version, 1, client, produce_request(topic, about, first))
    shape = ProduceShape.of(frame, version)
    assert shape is not None
    again = request_of(Api.PRODUCE, version, correlation_id, client, produce_request(topic, about, following))
    found = shape.again(again)
    assert found is not None
    assert [(index, bytes(batch)) for index, batch in found] == [
        (part["index"], part["records"]) for part in following
    ]
    known, draw = read(Api.PRODUCE, version, frame), random.Random(seed)
    assert known is not None
    for _ in range(8):
        other = damaged(again, draw)
        guess, truth = shape.again(other), read(Api.PRODUCE, version, other)
        if guess is not None:
            assert truth is not None
            assert (truth.client_id, truth.body.acks) == (known.client_id, known.body.acks)
            assert truth.body.transactional_id is None
            (data,) = truth.body.topic_data
            assert (data.topic_id, data.name) == (
                known.body.topic_data[0].topic_id,
                known.body.topic_data[0].name,
            )
            assert guess == [(part.index, part.records) for part in data.partition_data]


@pytest.mark.parametrize("version", PRODUCE)
@given(
    topics,
    int32,
    st.integers(0, 2**31 - 1),
    st.lists(
        st.fixed_dictionaries(
            {"index": int32, "error_code": st.just(0), "base_offset": int64, "log_start_offset": int64},
            optional={"log_append_time": int64},
        ),
        max_size=4,
    ),
)
def test_the_answer_to_a_produce_request_is_written_alike(
    version: int, topic: dict[str, Any], correlation_id: int, throttle_ms: int, parts: list[dict[str, Any]]
) -> None:
    frame = request_of(Api.PRODUCE, version, 1, "c", produce_request(topic, {}, [{"records": b"x"}]))
    shape = ProduceShape.of(frame, version)
    assert shape is not None
    answer = {"responses": [{**topic, "partition_responses": parts}], "throttle_time": throttle_ms}
    expected = encode_response(Api.PRODUCE, version, correlation_id, answer)
    assert shape.answer(correlation_id, throttle_ms, parts) == expected
    assert shape.answer(correlation_id, throttle_ms, [*parts, {"index": 0, "error_code": 3}]) is None


# Each field of a batch's header: where it is, and how it is written.
HEADER = ((0, ">q"), (8, ">i"), (12, ">i"), (16, ">b"), (21, ">h"), (23, ">i"), (27, ">q"), (35, ">q"))
HEADER += ((43, ">q"), (57, ">i"))


@pytest.mark.parametrize("version", PRODUCE)
@given(
    topics,
    st.lists(st.tuples(int32, st.lists(st.binary(max_size=50), min_size=1, max_size=3)), max_size=2),
    st.lists(st.tuples(st.sampled_from(HEADER), st.integers(-2, 3)), max_size=2),
    st.booleans(),
    int32,
    st.integers(0, 2**32),
)
def test_a_plain_batch_is_found_where_the_codec_and_its_check_find_one(
    version: int,
    topic: dict[str, Any],
    parts: list[tuple[int, list[bytes]]],
    changes: list[tuple[tuple[int, str], int]],
    sealed: bool,
    correlation_id: int,
    seed: int,
) -> None:
    first = request_of(
        Api.PRODUCE, version, 1, "c", produce_request(topic, {"acks": -1}, [{"records": b"x"}])
    )
    shape = ProduceShape.of(first, version)
    assert shape is not None
    batches = []
    for index, values in parts:
        batch = bytearray(encode_batch([Record(n, 5, None, value) for n, value in enumerate(values)]))
        if sealed:
            seal(batch, 0)
        for (at, form), value in changes:
            struct.pack_into(form, batch, at, value)
        if sealed and read_header(batch).size_bytes == len(batch):
            seal(batch, 0)
        batches.append({"index": index, "records": bytes(batch)})
    frame = request_of(
        Api.PRODUCE, version, correlation_id, "c", produce_request(topic, {"acks": -1}, batches)
    )
    assert found_plain(shape, frame) == expected_plain(version, frame, read(Api.PRODUCE, version, first))
    for _ in range(4):
        other, draw = bytearray(frame), random.Random(seed)
        other = damaged(other, draw)
        found = found_plain(shape, other)
        if found is not None:
            assert found == expected_plain(version, other, read(Api.PRODUCE, version, first))


@pytest.mark.parametrize(("at", "form"), HEADER)
@pytest.mark.parametrize("value", [-1, 0, 1, 2, 3, 16])
def test_each_field_of_a_batch_is_looked_at(at: int, form: str, value: int) -> None:
    topic, version = {"topic_id": uuid.uuid4(), "name": "t"}, 10
    batch = bytearray(encode_batch([Record(n, 5, None, b"v") for n in range(2)]))
    struct.pack_into(form, batch, at, value)
    if read_header(batch).size_bytes == len(batch):
        seal(batch, 0)
    fields = produce_request(topic, {"acks": -1}, [{"records": bytes(batch)}])
    frame = request_of(Api.PRODUCE, version, 1, "c", fields)
    shape = ProduceShape.of(frame, version)
    assert shape is not None
    assert found_plain(shape, frame) == expected_plain(version, frame, read(Api.PRODUCE, version, frame))


def test_a_request_with_something_behind_its_batch_carries_no_plain_one() -> None:
    topic, batch = {"topic_id": uuid.uuid4(), "name": "t"}, encode_batch([Record(0, 5, None, b"v")])
    fields = produce_request(topic, {"acks": -1}, [{"records": bytes(batch)}])
    frame = request_of(Api.PRODUCE, 10, 1, "c", fields)
    shape = ProduceShape.of(frame, 10)
    assert shape is not None
    assert found_plain(shape, frame) is not None
    assert found_plain(shape, frame + b"\0") is None
    assert found_plain(shape, frame[:-1]) is None
    for place in (1, 2, 3):  # the numbers of tagged fields of the partition, the topic and the request
        tagged = bytearray(frame)
        tagged[-place] = 1
        assert found_plain(shape, tagged) is None


def found_plain(shape: ProduceShape, frame: bytearray) -> tuple[Any, ...] | None:
    found = shape.plain_batch(address_of(frame), len(frame))
    if found is None:
        return None
    batch = bytes(frame[found.start : found.start + found.size_bytes])
    return found.partition, batch, found.record_count, found.base_timestamp, found.max_timestamp


def expected_plain(version: int, frame: bytearray, known: Request | None) -> tuple[Any, ...] | None:
    request = read(Api.PRODUCE, version, frame)
    assert known is not None
    if request is None or request.client_id != known.client_id or len(request.body.topic_data) != 1:
        return None
    (data,) = request.body.topic_data
    if (data.topic_id, data.name) != (known.body.topic_data[0].topic_id, known.body.topic_data[0].name):
        return None
    if len(data.partition_data) != 1 or data.partition_data[0].records is None:
        return None
    (part,) = data.partition_data
    try:
        header = check_batch(part.records)
    except (CorruptionError, RequestError):
        return None
    if header.size_bytes != len(part.records) or header.attributes or header.producer_id >= 0:
        return None
    times = header.base_timestamp, header.max_timestamp
    return part.index, bytes(part.records), header.record_count, *times


def test_requests_of_transactions_of_several_topics_and_old_versions_have_no_shape() -> None:
    topic = {"topic_id": uuid.uuid4(), "name": "t", "partition_data": [{"records": b"x"}]}
    for version, fields in (
        (10, {"transactional_id": "t", "topic_data": [topic]}),
        (10, {"topic_data": [topic, topic]}),
        (10, {"topic_data": []}),
        (8, {"topic_data": [topic]}),
    ):
        assert ProduceShape.of(request_of(Api.PRODUCE, version, 1, "c", fields), version) is None


# --- fetch ------------------------------------------------------------------------------------

about_fetch = st.fixed_dictionaries(
    {
        **dict.fromkeys(("max_wait", "min_bytes", "max_bytes", "session_id", "session_epoch"), int32),
        "isolation_level": int8,
    }
)
about_partition = st.fixed_dictionaries(
    {
        **dict.fromkeys(("current_leader_epoch", "last_fetched_epoch", "partition_max_bytes"), int32),
        "log_start_offset": int64,
    }
)


def fetch_request(
    topic: dict[str, Any], about: dict[str, int], each: dict[int, dict[str, int]], offsets: dict[int, int]
) -> dict[str, Any]:
    parts = [{"partition": i, "fetch_offset": offset, **each[i]} for i, offset in offsets.items()]
    return {**about, "topics": [{"topic_id": topic["topic_id"], "topic": topic["name"], "partitions": parts}]}


@pytest.mark.parametrize("version", FETCH)
@given(st.data(), topics, about_fetch, indexes, names, int32, st.integers(0, 2**32))
def test_the_next_fetch_is_read_alike(
    version: int,
    data: st.DataObject,
    topic: dict[str, Any],
    about: dict[str, int],
    order: list[int],
    client: str,
    correlation_id: int,
    seed: int,
) -> None:
    each = {index: data.draw(about_partition) for index in order}
    first = {index: data.draw(int64) for index in order}
    following = {index: data.draw(int64) for index in data.draw(st.permutations(order))}
    frame = request_of(Api.FETCH, version, 1, client, fetch_request(topic, about, each, first))
    shape = FetchShape.of(frame, version)
    assert shape is not None
    again = request_of(
        Api.FETCH, version, correlation_id, client, fetch_request(topic, about, each, following)
    )
    found = shape.offsets(again)
    assert found is not None
    assert list(found.items()) == list(following.items())
    known, draw = read(Api.FETCH, version, frame), random.Random(seed)
    assert known is not None
    for _ in range(8):
        other = damaged(again, draw)
        guess, truth = shape.offsets(other), read(Api.FETCH, version, other)
        if guess is not None:
            assert truth is not None
            assert truth.client_id == known.client_id
            assert described(truth) == described(known)
            parts = truth.body.topics[0].partitions
            assert list(guess.items()) == [(part.partition, part.fetch_offset) for part in parts]


def described(request: Request) -> tuple[Any, ...]:
    """All that is asked but offsets and the order of partitions."""
    fields = {name: value for name, value in vars(request.body).items() if name != "topics"}
    (topic,) = request.body.topics
    parts = sorted(
        sorted((name, value) for name, value in vars(part).items() if name != "fetch_offset")
        for part in topic.partitions
    )
    return fields, topic.topic, topic.topic_id, parts


@pytest.mark.parametrize("version", FETCH)
@given(
    topics,
    int32,
    st.booleans(),
    st.lists(st.tuples(int64, int64, int64), min_size=1, max_size=4),
    st.integers(-1, 3),
    records,
    st.randoms(use_true_random=False),
)
def test_the_answer_to_a_fetch_is_written_alike(
    version: int,
    topic: dict[str, Any],
    correlation_id: int,
    committed: bool,
    standings: list[tuple[int, int, int]],
    chosen: int,
    batch: bytes,
    shuffle: random.Random,
) -> None:
    each: dict[int, dict[str, int]] = {7 * index: {} for index in range(len(standings))}
    frame = request_of(Api.FETCH, version, 1, "c", fetch_request(topic, {}, each, dict.fromkeys(each, 0)))
    shape = FetchShape.of(frame, version)
    assert shape is not None
    order = shuffle.sample(range(len(standings)), len(standings))
    offsets = {7 * place: place for place in order}
    again = request_of(Api.FETCH, version, correlation_id, "c", fetch_request(topic, {}, each, offsets))
    assert shape.offsets(again) == offsets
    for place, standing in enumerate(standings):
        shape.again.standings[STANDING_FIELDS * place + 1 : STANDING_FIELDS * (place + 1)] = array(
            "q", standing
        )
    shape.again.keep(memoryview(again), committed=committed)
    room = bytearray(ROOM_BYTES)
    size = shape.again.answer(address_of(room), chosen=chosen, records=batch)
    fields = [
        {
            "partition_index": 7 * place,
            "high_watermark": standings[place][0],
            "last_stable_offset": standings[place][1],
            "log_start_offset": standings[place][2],
            "aborted_transactions": () if committed else None,
            "records": batch if place == chosen else b"",
        }
        for place in order
    ]
    answer = {"responses": [{"topic_id": topic["topic_id"], "topic": topic["name"], "partitions": fields}]}
    assert bytes(room[:size]) == encode_response(Api.FETCH, version, correlation_id, answer)


def test_a_fetch_that_names_a_partition_twice_or_another_one_is_not_the_same_again() -> None:
    topic, each = {"topic_id": uuid.uuid4(), "name": "t"}, {0: {}, 1: {}, 2: {}}

    def frame(*partitions: int) -> bytearray:
        parts = [{"partition": index, "fetch_offset": 5, **each[index]} for index in partitions]
        fields = {"topics": [{"topic_id": topic["topic_id"], "topic": "t", "partitions": parts}]}
        return request_of(Api.FETCH, 16, 1, "c", fields)

    assert FetchShape.of(frame(0, 0), 16) is None
    shape = FetchShape.of(frame(0, 1), 16)
    assert shape is not None
    assert shape.offsets(frame(1, 0)) == {1: 5, 0: 5}
    for other in (frame(0, 0), frame(0, 2), frame(0), frame(0, 1, 2)):
        assert shape.offsets(other) is None
