"""What is read and written by hand is what the schema's codec reads and writes."""

import random
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire import Api, MalformedError, fast_codec, versions_of
from headrace.wire.codec import REQUEST, RESPONSE, decoder, encoder, general_decoder, general_encoder
from headrace.wire.values import Cursor, Fields, Frame

CASES = [
    pytest.param(api, version, id=f"{api.name.lower()}-v{version}")
    for api, first in ((Api.PRODUCE, 9), (Api.FETCH, 12))
    for version in range(first, versions_of(api).highest + 1)
]

int8, int16, int32, int64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64))
names, ids = st.text(max_size=8) | st.just("x" * 130), st.none() | st.uuids()
few = {"max_size": 4}


def fields(**given: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A message with some of these fields; the others are left out."""
    return st.fixed_dictionaries({}, optional=given)


produce_requests = fields(
    transactional_id=st.none() | names,
    acks=int16,
    timeout=int32,
    topic_data=st.lists(
        fields(
            topic_id=ids,
            name=names,
            partition_data=st.lists(fields(index=int32, records=st.none() | st.binary(max_size=300)), **few),
        ),
        **few,
    ),
)
fetch_requests = fields(
    cluster_id=st.none() | names,
    replica_id=int32,
    max_wait=int32,
    min_bytes=int32,
    max_bytes=int32,
    isolation_level=int8,
    session_id=int32,
    session_epoch=int32,
    topics=st.lists(
        fields(
            topic_id=ids,
            topic=names,
            partitions=st.lists(
                fields(
                    partition=int32,
                    current_leader_epoch=int32,
                    fetch_offset=int64,
                    last_fetched_epoch=int32,
                    log_start_offset=int64,
                    partition_max_bytes=int32,
                    high_watermark=st.just(2**63 - 1) | int64,
                ),
                max_size=5,
            ),
        ),
        **few,
    ),
    forgotten_topics_data=st.just([]) | st.lists(fields(topic_id=ids, topic=names), **few),
    rack_id=st.just("") | names,
)
leader = st.none() | fields(leader_id=int32, leader_epoch=int32)
produce_answers = fields(
    responses=st.lists(
        fields(
            topic_id=ids,
            name=names,
            partition_responses=st.lists(
                fields(
                    index=int32,
                    error_code=int16,
                    base_offset=int64,
                    log_append_time=int64,
                    log_start_offset=int64,
                    record_errors=st.lists(fields(batch_index=int32), **few),
                    error_message=st.none() | names,
                    current_leader=leader,
                ),
                **few,
            ),
        ),
        **few,
    ),
    throttle_time=int32,
)


class Extent:
    """Bytes that are sent in their place without being in the frame."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes


extents = st.builds(Extent, st.integers(0, 2**31 - 2))
fetch_answers = fields(
    throttle_time=int32,
    error_code=int16,
    session_id=int32,
    responses=st.lists(
        fields(
            topic_id=ids,
            topic=names,
            partitions=st.lists(
                fields(
                    partition_index=int32,
                    error_code=int16,
                    high_watermark=int64,
                    last_stable_offset=int64,
                    log_start_offset=int64,
                    aborted_transactions=st.none()
                    | st.just(())
                    | st.lists(fields(producer_id=int64, first_offset=int64), **few),
                    preferred_read_replica=int32,
                    records=st.none()
                    | st.binary(max_size=300)
                    | st.builds(Extent, st.integers(0, 2**31 - 2)),
                    current_leader=leader,
                ),
                max_size=5,
            ),
        ),
        **few,
    ),
)
REQUESTS = {Api.PRODUCE: produce_requests, Api.FETCH: fetch_requests}
ANSWERS = {Api.PRODUCE: produce_answers, Api.FETCH: fetch_answers}


def plain(value: Any) -> Any:
    """A decoded body with the defaults filled in, as values that can be compared."""
    if isinstance(value, Fields):
        return {name: plain(getattr(value, name)) for name in value.known}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return bytes(value) if isinstance(value, memoryview) else value


def outcome(read: Any, data: bytes) -> tuple[Any, int]:
    """What a reader makes of bytes, and where it ended."""
    cursor = Cursor(data)
    try:
        return plain(read(cursor)), cursor.position
    except MalformedError as error:
        return str(error), -1


@pytest.mark.parametrize(("api", "version"), CASES)
@given(data=st.data())
def test_a_request_is_read_alike(api: Api, version: int, data: st.DataObject) -> None:
    frame = Frame()
    general_encoder(api, version, REQUEST)(frame, data.draw(REQUESTS[api]))
    message = bytes(frame)
    read, general = decoder(api, version, REQUEST), general_decoder(api, version, REQUEST)
    assert outcome(read, message) == outcome(general, message)
    assert outcome(read, message + b"more") == outcome(general, message + b"more")


@pytest.mark.parametrize(("api", "version"), CASES)
@given(data=st.data())
def test_damaged_requests_are_read_or_refused_alike(api: Api, version: int, data: st.DataObject) -> None:
    frame = Frame()
    general_encoder(api, version, REQUEST)(frame, data.draw(REQUESTS[api]))
    draw = random.Random(data.draw(st.integers(0, 2**32)))
    for _ in range(8):
        message = bytearray(frame)
        message[draw.randrange(len(message))] = draw.randrange(256)
        damaged = bytes(message[: draw.randrange(1, len(message) + 1)])
        read, general = decoder(api, version, REQUEST), general_decoder(api, version, REQUEST)
        assert outcome(read, damaged) == outcome(general, damaged)


@pytest.mark.parametrize(("api", "version"), CASES)
@given(data=st.data())
def test_an_answer_is_written_alike(api: Api, version: int, data: st.DataObject) -> None:
    answer = data.draw(ANSWERS[api])
    ours, general = Frame(b"before"), Frame(b"before")
    encoder(api, version, RESPONSE)(ours, answer)
    general_encoder(api, version, RESPONSE)(general, answer)
    assert (bytes(ours), ours.deferred) == (bytes(general), general.deferred)


def test_a_fetch_of_many_partitions_is_read_alike() -> None:
    frame = Frame()
    topic = {"topic_id": uuid.uuid4(), "partitions": [{"partition": i} for i in range(130)]}
    general_encoder(Api.FETCH, 16, REQUEST)(frame, {"topics": [topic]})
    general = general_decoder(Api.FETCH, 16, REQUEST)
    assert outcome(decoder(Api.FETCH, 16, REQUEST), bytes(frame)) == outcome(general, bytes(frame))


@pytest.mark.parametrize(("api", "version"), CASES)
def test_what_clients_nearly_always_send_is_read_and_written_by_hand(api: Api, version: int) -> None:
    topic = {"topic_id": uuid.uuid4(), "topic": "t", "name": "t"}
    request = {
        Api.PRODUCE: {"topic_data": [topic | {"partition_data": [{"index": 1, "records": bytes(70_000)}]}]},
        Api.FETCH: {"topics": [topic | {"partitions": [{"partition": 1}]}]},
    }
    answer = {
        Api.PRODUCE: {"responses": [topic | {"partition_responses": [{"index": 1, "base_offset": 5}]}]},
        Api.FETCH: {"responses": [topic | {"partitions": [{"partition_index": 1, "records": Extent(7)}]}]},
    }
    frame = Frame()
    general_encoder(api, version, REQUEST)(frame, _without(request[api], api, version))
    assert fast_codec.reader_of(api, version)(Cursor(frame)) is not None
    assert fast_codec.writer_of(api, version)(Frame(), _without(answer[api], api, version))


def _without(message: dict[str, Any], api: Api, version: int) -> dict[str, Any]:
    """The message with a topic that has only the fields of its API."""
    (where, (topic,)), *_ = message.items()
    gone = "topic" if api == Api.PRODUCE else "name"
    return {where: [{name: value for name, value in topic.items() if name != gone}]}
