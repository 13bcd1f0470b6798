"""Cases of producing: acknowledgement, refusals of batches, timestamps, order."""

import struct
import uuid
import zlib

import confluent_kafka as ck
import crc32c

from headrace.records import Record, encode_batch
from headrace.wire import Api
from parity.case import case
from parity.stage import TIME_MS, batch_of, code, since_start

AREA = "produce"
HOUR_MS = 3_600_000


def spoiled(batch, at, layout, value):
    """The batch with one field of its header changed and its CRC made right again."""
    data = bytearray(batch)
    struct.pack_into(layout, data, at, value)
    struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
    return bytes(data)


@case(AREA, "acks=1 and acks=all are answered with the base offset, the first being 0")
def acknowledged(log):
    topic = log.topic()
    return [log.placed(topic, batch_of(b"a", b"b"), acks=1), log.placed(topic, batch_of(b"c"), acks=-1)]


@case(AREA, "acks=0 gets no response, and the record is there")
def unacknowledged(log):
    topic = log.topic()
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch_of(b"silent")}]}]
    log.peer.send_only(Api.PRODUCE, 9, {"acks": 0, "timeout": 1000, "topic_data": data})
    return log.values(topic, wait_ms=10_000)


@case(AREA, "acks=2 is INVALID_REQUIRED_ACKS")
def invalid_acks(log):
    topic = log.topic()
    return [log.placed(topic, batch_of(), acks=2), log.placed(topic, batch_of(), acks=-2), log.values(topic)]


@case(AREA, "an unknown topic and an unknown partition are UNKNOWN_TOPIC_OR_PARTITION")
def unknown(log):
    topic = log.topic()
    return [
        log.placed(log.fresh("missing"), batch_of()),
        log.placed(topic, batch_of(), partition=1),
        log.placed(topic, batch_of(), partition=-1),
    ]


@case(AREA, "an invalid topic name")
def impossible_name(log):
    return [log.placed(name, batch_of()) for name in ("a b", "", "..", "x" * 300)]


@case(AREA, "parts of one request succeed and fail independently")
def one_by_one(log):
    topic = log.topic(partitions=2)
    parts = [{"index": index, "records": batch_of(b"%d" % index)} for index in (0, 7, 1)]
    fields = {"acks": -1, "timeout": 1000, "topic_data": [{"name": topic, "partition_data": parts}]}
    (answer,) = log.ask(Api.PRODUCE, 9, fields).responses
    return sorted(
        [part.index, code(part.error_code), part.base_offset] for part in answer.partition_responses
    )


@case(AREA, "a topic is named by its id since version 13; another id is UNKNOWN_TOPIC_ID")
def by_id(log):
    found = []
    for topic_id in (log.topic_id(log.topic()), uuid.UUID(int=77)):
        data = [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": batch_of()}]}]
        answer = log.ask(Api.PRODUCE, 13, {"acks": -1, "timeout": 1000, "topic_data": data}).responses[0]
        (part,) = answer.partition_responses
        found.append([answer.topic_id == topic_id, code(part.error_code), part.base_offset])
    return found


@case(AREA, "pipelined requests on one connection are appended and answered in order")
def pipelined(log):
    topic = log.topic()
    sending = log.connect()
    for number in range(5):
        data = [{"name": topic, "partition_data": [{"index": 0, "records": batch_of(b"%d" % number)}]}]
        sending.send_only(Api.PRODUCE, 9, {"acks": -1, "timeout": 1000, "topic_data": data})
    sending._correlation_id -= 5
    offsets = []
    for _ in range(5):
        sending._correlation_id += 1
        answer = sending.receive(Api.PRODUCE, 9).responses[0].partition_responses[0]
        offsets.append(answer.base_offset)
    return [offsets, log.values(topic)]


@case(AREA, "a compacted topic rejects records without a key (INVALID_RECORD) and accepts null values")
def compacted(log):
    topic = log.topic(cleanup_policy="compact")
    refused = log.produce(topic, batch_of(b"no key"))
    return [
        [code(refused.error_code), refused.base_offset, [each.batch_index for each in refused.record_errors]],
        log.placed(topic, batch_of(b"v", key=b"k")),
        log.placed(topic, batch_of(None, key=b"k")),
        log.values(topic),
    ]


@case(AREA, "one record without a key among others: the error names its index, and nothing is appended")
def one_without_key(log):
    topic = log.topic(cleanup_policy="compact")
    keys = (b"a", None, b"c", None)
    batch = bytes(encode_batch([Record(0, TIME_MS, key, b"v") for key in keys]))
    refused = log.produce(topic, batch)
    places = [each.batch_index for each in refused.record_errors]
    return [code(refused.error_code), places, log.placed(topic, batch_of(b"v", key=b"k"))]


@case(AREA, "a batch over max.message.bytes is MESSAGE_TOO_LARGE, one of exactly that size is accepted")
def too_large(log):
    batch = batch_of(b"x" * 1000)
    return [
        log.placed(log.topic(max_message_bytes=len(batch) - 1), batch),
        log.placed(log.topic(max_message_bytes=len(batch)), batch),
    ]


@case(AREA, "two batches for one partition are INVALID_RECORD")
def two_batches(log):
    topic = log.topic()
    return [log.placed(topic, batch_of(b"a") + batch_of(b"b")), log.placed(topic, batch_of())]


@case(AREA, "a wrong CRC is CORRUPT_MESSAGE")
def wrong_crc(log):
    topic, batch = log.topic(), bytearray(batch_of())
    batch[-1] ^= 1
    return [log.placed(topic, bytes(batch)), log.placed(topic, batch_of())]


@case(AREA, "the formats before version 2 are rejected")
def old_format(log):
    topic = log.topic()
    body = struct.pack(">bbqi", 1, 0, TIME_MS, -1) + struct.pack(">i", 1) + b"v"
    message = struct.pack(">I", zlib.crc32(body)) + body
    return log.placed(topic, struct.pack(">qi", 0, len(message)) + message)


@case(AREA, "no batch at all for a partition")
def nothing(log):
    topic = log.topic()
    return [log.placed(topic, b""), log.values(topic)]


@case(AREA, "a batch that claims other records than it has is rejected")
def wrong_count(log):
    topic = log.topic()
    batch = batch_of(b"a", b"b")
    return [
        log.placed(topic, spoiled(batch, 57, ">i", 3)),
        log.placed(topic, spoiled(batch, 57, ">i", 1)),
        log.placed(topic, spoiled(batch, 23, ">i", 5)),
        log.placed(topic, batch),
    ]


@case(AREA, "an empty batch is INVALID_RECORD")
def empty_batch(log):
    return log.placed(log.topic(), bytes(encode_batch([])))


@case(AREA, "only the broker writes control batches: INVALID_RECORD")
def control(log):
    record = Record(0, TIME_MS, b"\0\0\0\1", b"\0\0\0\0\0\0")
    return log.placed(log.topic(), bytes(encode_batch([record], control=True)))


@case(AREA, "only the broker writes internal topics: INVALID_TOPIC_EXCEPTION")
def internal(log):
    return [log.placed(topic, batch_of()) for topic in ("__consumer_offsets", "__transaction_state")]


@case(AREA, "zstd before version 7 is UNSUPPORTED_COMPRESSION_TYPE")
def compression(log):
    topic = log.topic()
    zstd = batch_of(b"v" * 100, codec=4)
    return [log.placed(topic, zstd, version=6), log.placed(topic, zstd, version=7)]


@case(
    AREA,
    "compressed bytes that cannot be decompressed are rejected",
    differs="Headrace says what is wrong (INVALID_RECORD); Kafka answers UNKNOWN_SERVER_ERROR",
)
def garbage(log):
    topic = log.topic()
    return [log.placed(topic, spoiled(batch_of(b"v" * 50), 21, ">h", codec)) for codec in (1, 2, 3, 4)]


@case(AREA, "timestamps: a topic with create time keeps the client's, and returns -1")
def create_time(log):
    topic = log.topic()
    answer = log.produce(topic, batch_of(b"v", timestamp_ms=TIME_MS - 5000))
    return [answer.log_append_time, log.list_offset(topic, TIME_MS - 5000), log.list_offset(topic, -3)]


@case(AREA, "timestamps: a topic with append time returns it and overwrites the client's")
def append_time(log):
    topic = log.topic(message_timestamp_type="LogAppendTime")
    answer = log.produce(topic, batch_of(b"v", timestamp_ms=1))
    _, offset, latest = log.list_offset(topic, -3)
    return [code(answer.error_code), since_start(answer.log_append_time) == latest, latest >= 0, offset]


@case(AREA, "timestamps too far ahead or behind for the topic are INVALID_TIMESTAMP")
def timestamp_limits(log):
    topic = log.topic(message_timestamp_before_max_ms=HOUR_MS, message_timestamp_after_max_ms=HOUR_MS)
    found = []
    for shift in (-2 * HOUR_MS, -HOUR_MS // 2, 0, HOUR_MS // 2, 2 * HOUR_MS):
        answer = log.produce(topic, batch_of(b"v", timestamp_ms=TIME_MS + shift))
        found.append(
            [code(answer.error_code), answer.base_offset, [each.batch_index for each in answer.record_errors]]
        )
    return found


@case(AREA, "by default a timestamp may be an hour ahead, and any time behind")
def default_timestamp_limits(log):
    topic = log.topic()
    shifts = (-1000 * HOUR_MS, HOUR_MS // 2, 2 * HOUR_MS)
    return [log.placed(topic, batch_of(b"v", timestamp_ms=TIME_MS + shift)) for shift in shifts]


@case(AREA, "a record without a timestamp is accepted, and not found by time")
def no_timestamp(log):
    topic = log.topic()
    return [log.placed(topic, batch_of(b"v", timestamp_ms=-1)), log.list_offset(topic, 0)]


@case(AREA, "a librdkafka program: keys to partitions, offsets, headers, order")
def librdkafka(log):
    topic, delivered = log.topic(partitions=3), []
    producer = ck.Producer(
        {"bootstrap.servers": log.bootstrap, "partitioner": "murmur2_random", "acks": "all"}
    )
    for number in range(30):
        producer.produce(
            topic,
            f"value {number}",
            f"key {number % 7}",
            headers={"number": str(number)},
            on_delivery=lambda error, message: delivered.append(
                [error and error.name(), message.partition(), message.offset(), message.value().decode()]
            ),
        )
        producer.flush(10)
    return [delivered, *[log.values(topic, partition=index) for index in range(3)]]
