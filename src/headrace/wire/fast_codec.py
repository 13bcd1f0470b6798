"""Produce and Fetch, coded by hand: the two messages of which a broker sees thousands a second.

Theory of operation. The general codec walks a schema, some forty calls for a message
of one partition. Here the shape is known: what has a fixed width is read and written by
one `struct` call, and a fetch's partitions, which are all of one width, by one
iterator. Only what clients nearly always send is read here: flexible versions, lengths
that fit one byte, no tagged fields, no rack, nothing forgotten.

For anything else a reader returns None, and a writer False, as if it had not been
asked: the general codec then decides, on malformed bytes too. So nothing is refused
here, and both ways give the same bodies and the same bytes; `tests/property/wire` holds
them to it. Bounds: fewer than 127 topics of fewer than 127 partitions each are read
here, below what a message may hold, and nothing is sized by a number on the wire.
"""

import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from headrace.wire.schemas import MESSAGES
from headrace.wire.structures import fields_of, shape
from headrace.wire.values import Cursor, Fields, Frame, write_uvarint

__all__ = [
    *("BY_ID", "FETCH_WITHOUT_REPLICA", "HotReader", "HotWriter", "Unusual"),
    *("read_size", "reader_of", "short", "writer_of"),
]

HotReader = Callable[[Cursor], Fields | None]
HotWriter = Callable[[Frame, Mapping[str, Any]], bool]

_PRODUCE, _FETCH = 0, 1
BY_ID = 13  # since this version, of either, topics have ids instead of names
FETCH_WITHOUT_REPLICA = 15
_LONG = 0x80  # a length that needs a second byte
_NO_ID = bytes(16)
_Buffer = bytes | bytearray | memoryview


def reader_of(api_key: int, version: int) -> HotReader | None:
    """The reader of a request's body, if there is one for this version."""
    if api_key in (_PRODUCE, _FETCH) and version >= MESSAGES[api_key].flexible_request:
        return _produce_reader(version) if api_key == _PRODUCE else _fetch_reader(version)
    return None


def writer_of(api_key: int, version: int) -> HotWriter | None:
    """The writer of an answer's body, if there is one for this version."""
    if api_key in (_PRODUCE, _FETCH) and version >= MESSAGES[api_key].flexible_response:
        return _produce_writer(version) if api_key == _PRODUCE else _fetch_writer(version)
    return None


class Unusual(Exception):  # noqa: N818 - never leaves this room
    """The general codec is to look at it."""


_LEFT_TO_THE_GENERAL_CODEC = (Unusual, struct.error, IndexError, ValueError)  # too short, or no text


@lru_cache(1024)
def _uuid(raw: bytes) -> uuid.UUID | None:
    return uuid.UUID(bytes=raw) if raw != _NO_ID else None


def short(buffer: _Buffer, position: int) -> int:
    """A compact length or count of one byte, less one."""
    length = buffer[position]
    if not 0 < length < _LONG:
        raise Unusual
    return length - 1


def _topic(buffer: _Buffer, position: int, by_id: bool) -> tuple[Any, int]:
    """A topic's id or name, and the position behind it."""
    if by_id:
        return _uuid(bytes(buffer[position : position + 16])), position + 16
    end = position + 1 + short(buffer, position)
    return bytes(buffer[position + 1 : end]).decode(), end


def _no_tags(buffer: _Buffer, position: int) -> int:
    if buffer[position]:
        raise Unusual
    return position + 1


def _shapes(api_key: int, *path: str) -> list[Callable[[dict[str, Any]], Fields]]:
    """How to make a body, and the structures on the way down `path`, of the values of their fields."""
    fields, names = MESSAGES[api_key].request, [api_key, "request"]
    made = [_maker(shape(tuple(names), fields))]
    for name in path:
        fields = fields_of(fields, name)
        names.append(name)
        made.append(_maker(shape(tuple(names), fields)))
    return made


def _maker(kind: type[Fields]) -> Callable[[dict[str, Any]], Fields]:
    new = kind.__new__

    def make(values: dict[str, Any]) -> Fields:
        fields = new(kind)
        fields.__dict__ = values
        return fields

    return make


# --- produce ----------------------------------------------------------------------------------


def _produce_reader(version: int) -> HotReader:
    by_id = version >= BY_ID
    which = "topic_id" if by_id else "name"
    body, topic_data, partition_data = _shapes(_PRODUCE, "topic_data", "partition_data")
    acks_and_timeout, index_at = struct.Struct(">hi").unpack_from, struct.Struct(">i").unpack_from

    def read_partition(buffer: _Buffer, position: int, end: int) -> tuple[Fields, int]:
        (index,) = index_at(buffer, position)
        size, start = read_size(buffer, position + 4)
        if size > end - start:
            raise Unusual
        records = memoryview(buffer)[start : start + size]
        return partition_data({"index": index, "records": records}), _no_tags(buffer, start + size)

    def read(cursor: Cursor) -> Fields | None:
        buffer, position, end = cursor.buffer, cursor.position, cursor.end
        try:
            transactional_id = None
            if buffer[position]:
                length = short(buffer, position)
                transactional_id = bytes(buffer[position + 1 : position + 1 + length]).decode()
                position += length
            acks, timeout = acks_and_timeout(buffer, position + 1)
            topics = []
            count, position = short(buffer, position + 7), position + 8
            for _ in range(count):
                topic, position = _topic(buffer, position, by_id)
                parts = []
                inner, position = short(buffer, position), position + 1
                for _ in range(inner):
                    part, position = read_partition(buffer, position, end)
                    parts.append(part)
                topics.append(topic_data({which: topic, "partition_data": tuple(parts)}))
                position = _no_tags(buffer, position)
            cursor.position = _no_tags(buffer, position)
        except _LEFT_TO_THE_GENERAL_CODEC:
            return None
        return body(
            {
                "transactional_id": transactional_id,
                "acks": acks,
                "timeout": timeout,
                "topic_data": tuple(topics),
            }
        )

    return read


def read_size(buffer: _Buffer, position: int) -> tuple[int, int]:
    """A compact size that may need several bytes, and the position behind it."""
    value = shift = 0
    while (byte := buffer[position]) >= _LONG:
        value |= (byte & 0x7F) << shift
        shift += 7
        position += 1
        if shift > 21:  # larger than any frame
            raise Unusual
    value |= byte << shift
    if not value:  # null
        raise Unusual
    return value - 1, position + 1


_PRODUCED = frozenset({"index", "error_code", "base_offset", "log_append_time", "log_start_offset"})
_PRODUCE_TOPIC = frozenset({"topic_id", "name", "partition_responses"})
_PRODUCE_ANSWER = frozenset({"responses", "throttle_time"})


def _produce_writer(version: int) -> HotWriter:
    by_id = version >= BY_ID
    # Behind the numbers: no record errors, no message, no tagged fields.
    pack_part, pack_end = struct.Struct(">ihqqqBBB").pack, struct.Struct(">iB").pack

    def write(out: Frame, fields: Mapping[str, Any]) -> bool:
        responses = fields.get("responses", ())
        if not (fields.keys() <= _PRODUCE_ANSWER and _are_plainly_produced(responses)):
            return False
        write_uvarint(out, len(responses) + 1)
        for topic in responses:
            parts = topic.get("partition_responses", ())
            _write_topic(out, topic, "name", by_id)
            write_uvarint(out, len(parts) + 1)
            for part in parts:
                get = part.get
                out += pack_part(
                    get("index", 0),
                    get("error_code", 0),
                    get("base_offset", 0),
                    get("log_append_time", -1),
                    get("log_start_offset", -1),
                    *(1, 0, 0),
                )
            out.append(0)
        out += pack_end(fields.get("throttle_time", 0), 0)
        return True

    return write


def _are_plainly_produced(topics: Sequence[Mapping[str, Any]]) -> bool:
    """Whether nothing is in them but what is written here."""
    for topic in topics:
        if not topic.keys() <= _PRODUCE_TOPIC:
            return False
        for part in topic.get("partition_responses", ()):
            if not part.keys() <= _PRODUCED:
                return False
    return True


def _write_topic(out: Frame, topic: Mapping[str, Any], named: str, by_id: bool) -> None:
    if by_id:
        topic_id = topic.get("topic_id")
        out += topic_id.bytes if topic_id is not None else _NO_ID
    else:
        name = topic.get(named, "").encode()
        write_uvarint(out, len(name) + 1)
        out += name


# --- fetch ------------------------------------------------------------------------------------


def _fetch_reader(version: int) -> HotReader:
    by_id = version >= BY_ID
    which = "topic_id" if by_id else "topic"
    replica = () if version >= FETCH_WITHOUT_REPLICA else ("replica_id",)
    names = *replica, "max_wait", "min_bytes", "max_bytes", "isolation_level", "session_id", "session_epoch"
    head = struct.Struct(">" + "i" * len(replica) + "iiibii")
    partition = struct.Struct(">iiqiqiB")
    body, of_topic, of_partition = _shapes(_FETCH, "topics", "partitions")
    unpack_head, head_bytes, unpack_all, width = (
        *(head.unpack_from, head.size),
        *(partition.iter_unpack, partition.size),
    )

    def read_partitions(buffer: _Buffer, start: int, end: int) -> tuple[Fields, ...]:
        parts = []
        for index, epoch, offset, last_epoch, log_start, most, tags in unpack_all(
            memoryview(buffer)[start:end]
        ):
            if tags:
                raise Unusual
            values = {
                "partition": index,
                "current_leader_epoch": epoch,
                "fetch_offset": offset,
                "last_fetched_epoch": last_epoch,
                "log_start_offset": log_start,
                "partition_max_bytes": most,
            }
            parts.append(of_partition(values))
        return tuple(parts)

    def read(cursor: Cursor) -> Fields | None:
        buffer, position = cursor.buffer, cursor.position
        try:
            values = dict(zip(names, unpack_head(buffer, position), strict=True))
            topics = []
            position += head_bytes + 1
            for _ in range(short(buffer, position - 1)):
                topic, position = _topic(buffer, position, by_id)
                end = position + 1 + width * short(buffer, position)
                parts = read_partitions(buffer, position + 1, end)
                position = _no_tags(buffer, end)
                topics.append(of_topic({which: topic, "partitions": parts}))
            if buffer[position] != 1 or buffer[position + 1] != 1:  # something forgotten, or a rack
                return None
            cursor.position = _no_tags(buffer, position + 2)
        except _LEFT_TO_THE_GENERAL_CODEC:
            return None
        values["topics"] = tuple(topics)
        values["forgotten_topics_data"] = ()
        values["rack_id"] = ""
        return body(values)

    return read


_FETCHED = frozenset(
    {
        *("partition_index", "error_code", "high_watermark", "last_stable_offset", "log_start_offset"),
        *("aborted_transactions", "preferred_read_replica", "records"),
    }
)
_FETCH_TOPIC = frozenset({"topic_id", "topic", "partitions"})
_FETCH_ANSWER = frozenset({"throttle_time", "error_code", "session_id", "responses"})


_pack_fetched, _pack_replica = struct.Struct(">ihqqq").pack, struct.Struct(">i").pack


def _write_fetched(out: Frame, part: Mapping[str, Any]) -> None:
    get = part.get
    out += _pack_fetched(
        get("partition_index", 0),
        get("error_code", 0),
        get("high_watermark", 0),
        get("last_stable_offset", -1),
        get("log_start_offset", -1),
    )
    aborted = get("aborted_transactions", ())
    out.append(0 if aborted is None else 1)
    out += _pack_replica(get("preferred_read_replica", -1))
    records = get("records")
    if records is None:
        out.append(0)
    elif isinstance(records, bytes | bytearray | memoryview):
        write_uvarint(out, len(records) + 1)
        out += records
    else:
        write_uvarint(out, records.size_bytes + 1)
        out.deferred.append((len(out), records))
    out.append(0)


def _fetch_writer(version: int) -> HotWriter:
    by_id = version >= BY_ID
    pack_head = struct.Struct(">ihi").pack

    def write(out: Frame, fields: Mapping[str, Any]) -> bool:
        responses, get = fields.get("responses", ()), fields.get
        if not (fields.keys() <= _FETCH_ANSWER and _are_plainly_fetched(responses)):
            return False
        out += pack_head(get("throttle_time", 0), get("error_code", 0), get("session_id", 0))
        write_uvarint(out, len(responses) + 1)
        for topic in responses:
            parts = topic.get("partitions", ())
            _write_topic(out, topic, "topic", by_id)
            write_uvarint(out, len(parts) + 1)
            for part in parts:
                _write_fetched(out, part)
            out.append(0)
        out.append(0)
        return True

    return write


def _are_plainly_fetched(topics: Sequence[Mapping[str, Any]]) -> bool:
    """Whether nothing is in them but what is written here: of aborted transactions, that there are none."""
    for topic in topics:
        if not topic.keys() <= _FETCH_TOPIC:
            return False
        for part in topic.get("partitions", ()):
            if not part.keys() <= _FETCHED or part.get("aborted_transactions"):
                return False
    return True
