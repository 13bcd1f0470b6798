"""Many batches checked at once, against the same batches checked one after the other."""

import random

import pytest

from headrace.records import Record, encode_batch, stamp
from headrace.storage import sweep
from headrace.storage.index import SparseIndex
from headrace.storage.producer_facts import ProducerFacts
from headrace.storage.scan import scan

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


def everything_found(data, next_offset, gaps):
    index, facts = SparseIndex(0, 1000), ProducerFacts()
    end = scan(
        Bytes(data),
        0,
        position=0,
        end=len(data),
        next_offset=next_offset,
        index=index,
        gaps=gaps,
        note=facts.note,
    )
    entries = sorted(facts.entries(0, no_marker), key=lambda entry: entry.producer_id)  # each one's in order
    return end, bytes(index.entries), index.largest_timestamp, index.next_at, entries


@pytest.mark.parametrize("gaps", [False, True])
def test_a_sweep_finds_what_a_look_at_each_batch_finds(monkeypatch, gaps):
    swept = 0
    for seed in SEEDS:
        source = random.Random(seed)
        data, starts = some_batches(source, gaps=gaps)
        damaged(source, data, starts)
        monkeypatch.setattr(sweep, "LEAST_BATCHES", 10**9)
        expected = everything_found(data, 0, gaps)
        monkeypatch.setattr(sweep, "LEAST_BATCHES", 1)
        assert everything_found(data, 0, gaps) == expected, f"seed {seed}"
        swept += sweep.sweep(bytes(data), 0, gaps=gaps) is not None
    assert 0 < swept < len(SEEDS)  # both ways were taken


def test_every_flipped_bit_of_a_body_is_seen():
    many = bytearray()
    for offset in range(sweep.LEAST_BATCHES):
        batch = encode_batch([Record(0, 0, None, b"v")])
        stamp(batch, 0, offset, 0)
        many += batch
    assert sweep.sweep(bytes(many), 0, gaps=False) is not None
    size = len(many) // sweep.LEAST_BATCHES
    for start in (0, size * 100, len(many) - size):
        for bit in range(17 * 8, size * 8):
            many[start + bit // 8] ^= 1 << bit % 8
            assert sweep.sweep(bytes(many), 0, gaps=False) is None, f"bit {bit} of the batch at {start}"
            many[start + bit // 8] ^= 1 << bit % 8
