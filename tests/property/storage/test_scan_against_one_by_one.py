"""A scan of many batches, against the same batches looked at one after the other in Python."""

import importlib
import random

import pytest
from crc32c import crc32c

from headrace.records import HEADER_BYTES, Record, encode_batch, stamp
from headrace.storage.producers.batch_headers import PRODUCER_HEADER, ProducerHeaders
from headrace.storage.segments.index import SparseIndex
from headrace.storage.segments.scan import ScanEnd, scan

scanning = importlib.import_module(
    "headrace.storage.segments.scan"
)  # its package offers a function of that name

SEEDS = range(150)
BATCHES = 40


class Bytes:
    """As much of a disk as a scan asks for."""

    def __init__(self, data):
        self.data = bytes(data)

    def pread(self, fd, size, position):
        return self.data[position : position + size]


def some_batches(source, *, gaps):
    """Batches of any size, of several producers or of none, in transactions or not."""
    data, starts, offset, transactions = bytearray(), [], 0, source.random() < 0.3
    for number in range(BATCHES):
        producer_id = source.choice([-1, -1, 4, 5]) if source.random() < 0.9 else source.getrandbits(40)
        batch = encode_batch(
            [
                Record(delta, source.randrange(10**12), None, source.randbytes(source.choice([0, 9, 300])))
                for delta in range(source.choice([1, 1, 3]))
            ],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=number if producer_id >= 0 else -1,
            transactional=transactions and producer_id >= 0 and source.random() < 0.5,
        )
        starts.append(len(data))
        offset += source.randrange(5) if gaps else 0
        stamp(batch, 0, offset, 0)
        offset += int.from_bytes(batch[23:27], "big") + 1
        data += batch
    return data, starts


def damaged(source, data, starts):
    """The same bytes, most often with something wrong."""
    kind = source.choice(["nothing", "bit", "bit", "header", "header", "cut", "zeros", "swap", "two"])
    if kind in ("bit", "two"):
        for _ in range(2 if kind == "two" else 1):
            data[source.randrange(len(data))] ^= 1 << source.randrange(8)
    elif kind == "header":
        at = source.choice(starts) + source.randrange(61)
        data[at] = source.randrange(256)
    elif kind == "cut":
        del data[source.randrange(len(data)) :]
    elif kind == "zeros":
        data += bytes(source.randrange(5000))
    elif kind == "swap":
        first, second = sorted(source.sample(range(BATCHES - 1), 2))
        a, b = slice(starts[first], starts[first + 1]), slice(starts[second], starts[second + 1])
        data[:] = data[: a.start] + data[b] + data[a.stop : b.start] + data[a] + data[b.stop :]
    return data


def no_marker(position, size):
    raise AssertionError(f"nothing to read at {position}, {size} bytes")


def everything_found(data, gaps, look=scan):
    index, headers = SparseIndex(0, 1000), ProducerHeaders()
    end = look(
        Bytes(data), 0, position=0, end=len(data), next_offset=0, index=index, gaps=gaps, note=headers.note
    )
    entries = sorted(
        headers.entries(0, no_marker), key=lambda entry: entry.producer_id
    )  # each one's in order
    return end, bytes(index.entries), index.largest_timestamp, index.next_at, entries


def look_at_each(disk, fd, *, position, end, next_offset, index, gaps, note):
    """What a scan promises, in the plainest words."""
    data = disk.pread(fd, end, 0)
    while position + HEADER_BYTES <= end:
        header = PRODUCER_HEADER.unpack_from(data, position)
        base, length, signature, crc, _, delta, timestamp, producer_id, _, _ = header
        stop = position + 12 + length
        in_place = base == next_offset or (gaps and base > next_offset)
        if not in_place or signature != b"\0\0\0\0\2" or length < 49 or delta < 0:
            break
        if stop > end or crc32c(data[position + 21 : stop]) != crc:
            break
        index.add(base, position, timestamp)
        if producer_id >= 0:
            note(header, position)
        position, next_offset = stop, base + delta + 1
    return ScanEnd(position, next_offset, position == end)


@pytest.mark.parametrize("chunk_bytes", [1024 * 1024, 700])
@pytest.mark.parametrize("many", [0, 10**9])
@pytest.mark.parametrize("gaps", [False, True])
def test_a_scan_finds_what_a_look_at_each_batch_finds(monkeypatch, gaps, many, chunk_bytes):
    monkeypatch.setattr(scanning, "MANY_OF_PRODUCERS", many)
    monkeypatch.setattr(scanning, "CHUNK_BYTES", chunk_bytes)
    whole = 0
    for seed in SEEDS:
        source = random.Random(seed)
        data, starts = some_batches(source, gaps=gaps)
        damaged(source, data, starts)
        expected = everything_found(data, gaps, look_at_each)
        assert everything_found(data, gaps) == expected, f"seed {seed}"
        whole += expected[0].whole
    assert 0 < whole < len(SEEDS)


def test_every_flipped_bit_of_a_body_is_seen():
    many = bytearray()
    for offset in range(256):
        batch = encode_batch([Record(0, 0, None, b"v")])
        stamp(batch, 0, offset, 0)
        many += batch
    size = len(many) // 256
    for start in (0, size * 100, len(many) - size):
        for bit in range(17 * 8, size * 8):
            many[start + bit // 8] ^= 1 << bit % 8
            end, *_ = everything_found(many, False)
            assert end.position == start, f"bit {bit} of the batch at {start}"
            many[start + bit // 8] ^= 1 << bit % 8
