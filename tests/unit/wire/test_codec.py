import struct
import tracemalloc

import pytest

from headrace.wire import (
    Api,
    ErrorCode,
    Frame,
    MalformedError,
    decode_request,
    encode_request,
    encode_response,
    versions_of,
)
from headrace.wire.values import MAX_ELEMENTS, write_uvarint


def body_of(api: int, version: int, fields: dict) -> object:
    frame = encode_request(api, version, 7, "tester", fields)
    return decode_request(frame[4:], api, version).body


def test_a_request_keeps_its_header():
    frame = encode_request(Api.METADATA, 12, 99, "tester", {})
    request = decode_request(frame[4:], Api.METADATA, 12, client_host="127.0.0.1")
    assert (request.correlation_id, request.client_id, request.client_host) == (99, "tester", "127.0.0.1")


def test_fields_that_a_version_lacks_have_their_default():
    old = body_of(Api.JOIN_GROUP, 0, {"group_id": "g", "session_timeout": 10_000})
    assert old.session_timeout == 10_000
    assert old.group_instance_id is None
    assert old.rebalance_timeout == -1


def test_fields_that_only_old_versions_have_are_there_in_new_ones():
    assert body_of(Api.FIND_COORDINATOR, 3, {"key": "g"}).coordinator_keys == ()
    assert body_of(Api.FIND_COORDINATOR, 4, {"coordinator_keys": ["g"]}).key == ""


def test_a_structure_has_all_its_fields_also_in_versions_that_spell_it_otherwise():
    (oldest,) = body_of(Api.METADATA, 0, {"topics": [{"name": "t"}]}).topics
    assert (oldest.name, oldest.topic_id) == ("t", None)


def test_a_reply_field_that_no_version_has_is_a_defect():
    with pytest.raises(TypeError, match="no field colour"):
        encode_response(Api.METADATA, 12, 1, {"colour": "blue"})


def test_records_are_not_copied_out_of_the_frame():
    fields = {"topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": b"0123456789"}]}]}
    frame = bytearray(encode_request(Api.PRODUCE, 9, 1, "p", fields)[4:])
    request = decode_request(frame, Api.PRODUCE, 9)
    records = request.body.topic_data[0].partition_data[0].records
    frame[frame.index(b"0123456789")] = ord("X")
    assert bytes(records) == b"X123456789"


class Elsewhere:
    size_bytes = 1000


def test_deferred_records_count_in_the_frame_length_but_are_not_in_it():
    here = encode_response(Api.FETCH, 12, 1, _fetch_answer(bytes(1000)))
    frame = encode_response(Api.FETCH, 12, 1, _fetch_answer(Elsewhere()))
    assert frame[:4] == here[:4]
    assert len(here) - len(frame) == 1000
    ((place, extent),) = frame.deferred
    assert isinstance(extent, Elsewhere)
    assert here[:place] + here[place + 1000 :] == frame


def _fetch_answer(records: object) -> dict:
    part = {"partition_index": 0, "high_watermark": 5, "records": records}
    return {"responses": [{"topic": "t", "partitions": [part]}]}


@pytest.mark.parametrize("claimed", [-2, 2**20, 2**28, 2**31 - 1])
def test_an_array_that_claims_more_than_the_frame_holds_is_refused_without_being_allocated(claimed):
    frame = _header(Api.METADATA, 4) + struct.pack(">i", claimed) + bytes(50)
    _assert_cheap_refusal(frame, Api.METADATA, 4)


@pytest.mark.parametrize("claimed", [2**20, 2**28, 2**32 - 1])
def test_a_compact_array_that_claims_too_much_is_refused_likewise(claimed):
    out = Frame(_header(Api.METADATA, 12) + b"\x00")
    write_uvarint(out, claimed)
    _assert_cheap_refusal(bytes(out) + bytes(50), Api.METADATA, 12)


def test_more_elements_than_any_client_sends_are_refused_even_if_they_fit():
    count = MAX_ELEMENTS + 1
    frame = _header(Api.METADATA, 4) + struct.pack(">i", count) + bytes(2 * count) + b"\x00"
    with pytest.raises(MalformedError, match="array elements"):
        decode_request(frame, Api.METADATA, 4)


def _header(api: int, version: int) -> bytes:
    return struct.pack(">hhih", api, version, 1, -1)


def _assert_cheap_refusal(frame: bytes, api: int, version: int) -> None:
    decode_request(encode_request(api, version, 1, "x", {})[4:], api, version)  # compiles the codec
    tracemalloc.start()
    with pytest.raises(MalformedError):
        decode_request(frame, api, version)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_bytes_behind_the_message_are_ignored_as_kafka_does():
    frame = encode_request(Api.API_VERSIONS, 3, 1, "x", {"client_software_name": "n"})[4:] + b"!"
    assert decode_request(frame, Api.API_VERSIONS, 3).body.client_software_name == "n"


@pytest.mark.parametrize("api", list(Api))
def test_every_prefix_of_a_request_is_malformed_and_nothing_worse(api):
    version = versions_of(api).highest
    whole = encode_request(api, version, 1, "x", {})[4:]
    for size in range(4, len(whole)):
        with pytest.raises(MalformedError):
            decode_request(whole[:size], api, version)


def test_a_varint_that_never_ends_is_malformed():
    with pytest.raises(MalformedError, match="more than five"):
        decode_request(_header(Api.METADATA, 12) + b"\x00" + b"\xff" * 20, Api.METADATA, 12)


def test_text_that_is_not_utf8_is_malformed():
    frame = _header(Api.METADATA, 4) + struct.pack(">ih", 1, 2) + b"\xff\xfe\x00"
    with pytest.raises(MalformedError, match="UTF-8"):
        decode_request(frame, Api.METADATA, 4)


def test_malformed_errors_carry_kafkas_code():
    with pytest.raises(MalformedError) as caught:
        decode_request(b"\x00\x03\x00\x04", Api.METADATA, 4)
    assert caught.value.code == ErrorCode.invalid_request
