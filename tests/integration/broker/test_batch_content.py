"""What of a batch's content is refused, and that Kafka answers with the same code.

Every batch is made by hand and sent raw, here and to a real Kafka. Where we differ
on purpose, `DIFFERENT` has Kafka's answer and the reason.
"""

import contextlib
import itertools
import struct
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode

from headrace.records import Codec, Record
from headrace.records.batch import seal
from headrace.records.batch_header import HEADER, HEADER_BYTES, BatchHeader
from headrace.records.record import write_record
from headrace.testing.batches import batches_in
from headrace.testing.broker import BrokerProcess, running_broker
from headrace.wire import Api, ErrorCode, encode_request

from .conftest import Peer, produce_fields

TIME_MS = int(time.time() * 1000)  # recent, or retention would rightly remove the records
LIMIT_BYTES = 200_000
ENCODERS = {
    Codec.NONE: bytes,
    Codec.GZIP: gzip_encode,
    Codec.SNAPPY: snappy_encode,
    Codec.LZ4: lz4_encode,
    Codec.ZSTD: zstd_encode,
}
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
PLAIN_HEADER = BatchHeader(0, 0, -1, 2, 0, 0, 0, TIME_MS, TIME_MS, -1, -1, -1, 1)


def packed(payload, count=3, *, codec=Codec.NONE, delta=None, plain=False, **fields):
    """A batch of any records section, with a right length and a right CRC."""
    body = payload if plain else bytes(ENCODERS[codec](payload))
    header = PLAIN_HEADER._replace(
        batch_length=HEADER_BYTES - 12 + len(body),
        attributes=int(codec),
        last_offset_delta=count - 1 if delta is None else delta,
        record_count=count,
    )._replace(**fields)
    batch = bytearray(HEADER.pack(*header)) + body
    seal(batch, 0)
    return bytes(batch)


def record(delta, *, key=b"k", value=b"value", headers=()):
    out = bytearray()
    write_record(out, Record(delta, TIME_MS, key, value, headers), PLAIN_HEADER)
    return bytes(out)


def records(*deltas, **parts):
    return b"".join(record(delta, **parts) for delta in deltas)


def changed(payload, position, byte):
    out = bytearray(payload)
    out[position] = byte
    return bytes(out)


def old_message(magic):
    """A message of the formats before 0.11: offset, size, crc, magic, attributes, times from 1 on."""
    stamp = struct.pack(">q", TIME_MS) if magic else b""
    body = struct.pack(">bb", magic, 0) + stamp + struct.pack(">i1si5s", 1, b"k", 5, b"value")
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


GOOD = records(0, 1, 2)
# Of `record`: length, attributes, time, offset, key length, key, value length, value, headers.
HEADED = records(0, 1, headers=(("h", b"x"),)) + record(2, headers=(("h", b"x"),))


OK, INVALID, CORRUPT, LARGE = (
    ErrorCode.none,
    ErrorCode.invalid_record,
    ErrorCode.corrupt_message,
    ErrorCode.message_too_large,
)
UNKNOWN = ErrorCode.unknown_server_error
UNSUPPORTED = ErrorCode.unsupported_compression_type

BATCHES = {
    "nothing": (b"", INVALID),
    "magic 0": (old_message(0), INVALID),
    "magic 1": (old_message(1), INVALID),
    "magic 3": (packed(GOOD, magic=3), CORRUPT),
    "magic -1": (packed(GOOD, magic=-1), CORRUPT),
    "wrong crc": (changed(packed(GOOD), 20, 0x55), CORRUPT),
    "cut in the header": (packed(GOOD)[:40], INVALID),
    "cut in the records": (packed(GOOD)[:-1], INVALID),
    "a byte behind it": (packed(GOOD) + b"\0", INVALID),
    "a length of zero": (packed(GOOD, batch_length=0), CORRUPT),
    "a negative length": (packed(GOOD, batch_length=-1), CORRUPT),
    "a length beyond": (packed(GOOD, batch_length=5000), INVALID),
    "two batches": (packed(GOOD) * 2, INVALID),
    "too large": (packed(records(0, value=bytes(LIMIT_BYTES)), 1), LARGE),
    "too large, too few bytes": (packed(GOOD, batch_length=LIMIT_BYTES * 2), INVALID),
    "control": (
        packed(GOOD, attributes=0x20, producer_id=5, producer_epoch=0, base_sequence=0),
        INVALID,
    ),
    "no records": (packed(b"", 0), INVALID),
    "no records, one offset": (packed(b"", 0, delta=0), INVALID),
    "a negative count": (packed(GOOD, -1, delta=2), INVALID),
    "a negative last offset": (packed(GOOD, delta=-5), INVALID),
    "fewer offsets than records": (packed(GOOD, delta=1), INVALID),
    "more offsets than records": (packed(GOOD, delta=3), INVALID),
    "codec 5": (packed(GOOD, attributes=5), UNSUPPORTED),
    "codec 7": (packed(GOOD, attributes=7), UNSUPPORTED),
    "a base offset": (packed(GOOD, base_offset=77), INVALID),
    "a leader epoch": (packed(GOOD, leader_epoch=3), OK),
    "append time": (packed(GOOD, attributes=8), OK),
    "a delete horizon": (packed(GOOD, attributes=0x40), INVALID),
    "an unknown attribute": (packed(GOOD, attributes=0x100), OK),
}

SECTIONS = {
    "good": (GOOD, OK),
    "good, headers": (HEADED, OK),
    "no key": (records(0, 1, 2, key=None), OK),
    "more records than counted": (records(0, 1, 2, 3), INVALID),
    "fewer records than counted": (records(0, 1), INVALID),
    "a byte behind the records": (GOOD + b"\0", INVALID),
    "the last cut": (GOOD[:-1], INVALID),
    "offsets from 1": (records(1, 2, 3), INVALID),
    "an offset twice": (records(0, 1, 1), INVALID),
    "an offset left out": (records(0, 2, 3), INVALID),
    "offsets backwards": (records(2, 1, 0), INVALID),
    "a record beyond the end": (changed(GOOD, 0, 0x7E), INVALID),
    "a length of nothing": (changed(GOOD, 0, 0), INVALID),
    "a negative record length": (changed(GOOD, 0, 1), INVALID),
    "a length too short": (changed(GOOD, 0, GOOD[0] - 2), INVALID),
    "a length too long": (changed(GOOD, 0, GOOD[0] + 2), INVALID),
    "a length of six bytes": (b"\xff\xff\xff\xff\xff\x0f" + GOOD[1:], INVALID),
    "a key beyond its record": (changed(GOOD, 4, 0x7E), INVALID),
    "a negative key length": (changed(GOOD, 4, 3), INVALID),
    "a value beyond its record": (changed(GOOD, 6, 0x7E), INVALID),
    "a value too short": (changed(GOOD, 6, GOOD[6] - 2), INVALID),
    "a negative value length": (changed(GOOD, 6, 3), INVALID),
    "too many headers": (changed(HEADED, 12, 4), INVALID),
    "too few headers": (changed(HEADED, 12, 0), INVALID),
    "a negative number of headers": (changed(HEADED, 12, 1), INVALID),
    "a header without a name": (changed(HEADED, 13, 1), INVALID),
    "a header's name beyond": (changed(HEADED, 13, 0x7E), INVALID),
    "a header's value beyond": (changed(HEADED, 15, 0x7E), INVALID),
    "record attributes": (changed(GOOD, 1, 5), OK),
}

PACKINGS = {
    "not of its codec": (lambda codec: b"garbage" * 30, INVALID),
    "cut": (lambda codec: ENCODERS[codec](GOOD)[:-4], INVALID),
    "empty": (lambda codec: b"", INVALID),
}

# Kafka's answer, and why ours is another one.
IN_EACH_CODEC = CODECS[1:]
DIFFERENT = {
    "a byte behind it": (
        OK,
        "Kafka passes over bytes too few for a batch; a client that sends them is broken",
    ),
    "a delete horizon": (OK, "Kafka takes it for its own cleaner's, and drops tombstones early"),
    "codec 5": (UNKNOWN, "an exception inside Kafka"),
    "codec 7": (UNKNOWN, "an exception inside Kafka"),
    "a length of six bytes, none": (UNKNOWN, "an exception inside Kafka"),
}
for _name in ("offsets from 1", "an offset twice", "an offset left out", "offsets backwards"):
    DIFFERENT[f"{_name}, none"] = (OK, "Kafka looks at offsets inside of compressed batches only")
    DIFFERENT |= {
        f"{_name}, {codec.name.lower()}": (UNKNOWN, "an exception inside Kafka") for codec in IN_EACH_CODEC
    }
for _name in (
    "a record beyond the end",
    "a length of nothing",
    "a negative record length",
    "a length too short",
    "a length too long",
):
    DIFFERENT |= {
        f"{_name}, {codec.name.lower()}": (OK, "Kafka reads past the length; its consumers fail on it")
        for codec in IN_EACH_CODEC
    }
for _name, _codec in itertools.product(PACKINGS, IN_EACH_CODEC):
    if (_name, _codec) != ("empty", Codec.ZSTD):
        DIFFERENT[f"{_name}, {_codec.name.lower()}"] = (UNKNOWN, "an exception inside Kafka")


def cases():
    """Name, settings of the topic, batch and our answer."""
    for name, (batch, code) in BATCHES.items():
        yield name, {"max_message_bytes": LIMIT_BYTES}, batch, code
    for (name, (section, code)), codec in itertools.product(SECTIONS.items(), CODECS):
        yield f"{name}, {codec.name.lower()}", {}, packed(section, codec=codec), code
    for (name, (pack, code)), codec in itertools.product(PACKINGS.items(), IN_EACH_CODEC):
        yield f"{name}, {codec.name.lower()}", {}, packed(pack(codec), codec=codec, plain=True), code
    compacted = {"cleanup_policy": "compact"}
    for codec in CODECS:
        unkeyed = GOOD[: len(record(0))] + records(1, 2, key=None)
        yield f"compacted, no key, {codec.name.lower()}", compacted, packed(unkeyed, codec=codec), INVALID
        yield f"compacted, keys, {codec.name.lower()}", compacted, packed(GOOD, codec=codec), OK


CASES = list(cases())


def outcomes(port):
    """The code of each case."""
    found, topics = {}, {}
    with contextlib.closing(Peer(port)) as peer:
        for name, settings, batch, _ in CASES:
            topic = "content-" + "-".join(settings)
            if topic not in topics:
                topics[topic] = peer.create(topic, **settings)
            found[name] = ErrorCode(_answer(peer, topic, batch).error_code)
    return found


def _answer(peer, topic, batch):
    while True:
        answer = peer.produce(topic, batch)
        if answer.error_code not in (ErrorCode.unknown_topic_or_partition, ErrorCode.not_leader_or_follower):
            return answer


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with running_broker(tmp_path_factory.mktemp("broker"), check_records=True) as broker:
        yield broker


def test_every_kind_of_malformed_batch_gets_its_code(broker):
    assert outcomes(broker.port) == {name: code for name, _, _, code in CASES}


@pytest.mark.kafka
@pytest.mark.timeout(180)
def test_kafka_answers_in_the_same_way_but_for_what_is_listed(kafka_log):
    expected = {name: DIFFERENT[name][0] if name in DIFFERENT else code for name, _, _, code in CASES}
    assert outcomes(int(kafka_log.bootstrap_servers.rpartition(":")[2])) == expected


def test_what_differs_from_kafka_is_among_the_cases():
    assert DIFFERENT.keys() <= {name for name, *_ in CASES}


def test_a_refused_batch_leaves_the_log_as_it_was(peer, topic):
    for name, settings, batch, code in CASES:
        if code != OK and not settings:
            answer = peer.produce(topic, batch)
            assert (answer.error_code, answer.base_offset) == (code, -1), name
            assert answer.error_message
    assert peer.produce(topic, packed(GOOD)).base_offset == 0
    assert bytes(peer.fetch(topic, 0).records)[HEADER_BYTES:] == GOOD


def test_without_acknowledgement_a_malformed_batch_is_refused_too(peer, topic):
    peer.socket.sendall(
        encode_request(Api.PRODUCE, 9, 7, "peer", produce_fields(topic, packed(records(0, 2, 1)), acks=0))
    )
    assert peer.produce(topic, packed(GOOD, codec=Codec.LZ4)).base_offset == 0


def test_the_order_of_requests_holds_when_some_are_compressed(peer, topic):
    """Pipelined: every other one is looked into on a thread, the rest at once."""
    large = records(*range(2000), value=bytes(100))
    frames = [
        encode_request(
            Api.PRODUCE,
            9,
            number,
            "peer",
            produce_fields(topic, packed(large, 2000, codec=Codec.ZSTD if number % 2 else Codec.NONE)),
        )
        for number in range(20)
    ]
    peer.socket.sendall(b"".join(bytes(frame) for frame in frames))
    for number in range(20):
        frame = peer._receive()
        assert struct.unpack_from(">i", frame)[0] == number
    batches = list(batches_in(bytes(peer.fetch(topic, 0, max_bytes=1 << 24).records)))
    assert [header.codec for _, header in batches] == [Codec.NONE, Codec.ZSTD] * 10


# -- bombs

BOMB_BYTES = 100 * 1024 * 1024
BOUND_BYTES = 8 * 1024 * 1024


def memory_bytes(pid, field):
    """Of a process: VmRSS is what it has now, VmHWM the most it ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(field + ":")]
    return int(line.split()[1]) * 1024


def send_bombs(port, bombs, times):
    with contextlib.closing(Peer(port)) as peer:
        return [peer.produce("bombs", bomb).error_code for bomb in bombs for _ in range(times)]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see another's memory")
def test_bombs_in_every_codec_are_refused_and_memory_stays_flat(tmp_path):
    plain = records(0, value=bytes(BOMB_BYTES))
    tiny = records(*range(60), value=b"") * (BOMB_BYTES // 600)  # and one of very many records
    bombs = [packed(plain, 1, codec=codec) for codec in IN_EACH_CODEC]
    bombs.append(packed(tiny, 10_000_000, codec=Codec.ZSTD))
    harmless = packed(records(*range(3000), value=bytes(2000)), 3000, codec=Codec.ZSTD)
    with (
        BrokerProcess(tmp_path, max_decompressed_bytes=BOUND_BYTES) as broker,
        contextlib.closing(Peer(broker.port)) as peer,
    ):
        peer.create("bombs", max_message_bytes=16 * 1024 * 1024)
        peer.create("warm", cleanup_policy="compact")
        for topic in ("bombs", "warm"):  # the latter makes the broker import what it needs for a look
            assert peer.produce(topic, harmless).error_code == OK
        before = memory_bytes(broker.pid, "VmRSS")
        with ThreadPoolExecutor(4) as clients:
            codes = clients.map(lambda _: send_bombs(broker.port, bombs, 3), range(4))
            assert {code for each in codes for code in each} == {LARGE}
        peak = memory_bytes(broker.pid, "VmHWM")
        # Four requests at a time of up to 5 MB, a copy of one, and one bound of plain bytes, copied twice;
        # the bombs together are six gigabytes.
        assert peak - before < 5 * 5 * 1024 * 1024 + 5 * BOUND_BYTES
        assert peer.produce("bombs", harmless).base_offset == 3000


def test_by_default_only_compacted_topics_records_are_looked_into(start):
    broker = start()
    with contextlib.closing(Peer(broker.port)) as peer:
        peer.create("plain")
        peer.create("compacted", cleanup_policy="compact")
        for codec in CODECS:
            wrong = packed(records(0, 2, 1), codec=codec)
            assert peer.produce("plain", wrong).error_code == OK
            assert peer.produce("compacted", wrong).error_code == INVALID
