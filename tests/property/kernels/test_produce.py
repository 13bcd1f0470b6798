"""Batches that the kernel fills hold the same bytes as those of `records`, wherever they grow and end."""

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples

from headrace.client.write import OutputRecord, RecordBlock
from headrace.client.write.open_batches import OpenBatches, PlainBatch
from headrace.kernels import hash_key
from headrace.records import Record, encode_batch

PARTITIONS = 3
parts = st.none() | st.binary(max_size=300)
records = st.tuples(
    st.sampled_from(["a", "b"]),
    parts,
    parts,
    st.integers(-5000, 5000),
    st.sampled_from(["one", "placed", "block"]),
)


def murmur2(data: bytes) -> int:
    """As Kafka's `Utils.murmur2` reckons it."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


@given(st.binary(max_size=40))
def test_keys_are_hashed_as_kafkas_clients_hash_them(key):
    assert hash_key(key) == murmur2(key)


def added(batches: OpenBatches, several: list) -> None:
    for topic, key, value, at_ms, how in several:
        if how == "block":
            octets = bytearray(b"-" + (key or b"") + (value or b""))
            lengths = [-1 if each is None else len(each) for each in (key, value)]
            numbers = array("q", (0, ord("c"), 1, lengths[0], 1 + max(lengths[0], 0), lengths[1], at_ms))
            batches.add(RecordBlock(octets, numbers, 1, {0: topic}, 0))
        else:
            partition = hash_key(key) % PARTITIONS if how == "placed" and key is not None else None
            batches.add(OutputRecord(topic, key, value, (("h", b"1"),) * (how == "placed"), partition, at_ms))


@settings(max_examples=examples(32), deadline=None)
@given(st.lists(records, max_size=60))
def test_records_are_encoded_as_ever_in_their_order(several):
    full: list[PlainBatch] = []
    batches = OpenBatches(lambda _: PARTITIONS, full.append)
    added(batches, several)
    batches.flush()
    expected: dict[tuple[str, int], list[Record]] = {}
    for topic, key, value, at_ms, how in several:
        if key is not None:
            headers = (("h", b"1"),) * (how == "placed")
            expected.setdefault((topic, murmur2(key) % PARTITIONS), []).append(
                Record(0, at_ms, key, value, headers)
            )
    keyless = sum(key is None for _, key, *_ in several)
    assert sum(each.count for each in full) == len(several)
    if not keyless:
        found = {(each.topic, each.partition): each for each in full}
        assert len(found) == len(full)
        assert {at: each.records for at, each in found.items()} == {
            at: bytes(encode_batch(each)[61:]) for at, each in expected.items()
        }
        for at, each in found.items():
            times = [record.timestamp_ms for record in expected[at]]
            assert (each.base_timestamp_ms, each.max_timestamp_ms) == (times[0], max(times))


def test_batches_end_when_they_are_full_and_memory_is_bounded():
    full: list[PlainBatch] = []
    batches = OpenBatches(lambda _: 50, full.append)
    for n in range(2_000):
        batches.add(OutputRecord(f"topic {n % 40}", b"%d" % n, bytes(20_000), timestamp_ms=0))
    held = sum(each.room(n) for each in batches._topics.values() for n in range(50))
    assert full and held <= 16 << 20
    batches.flush()
    assert sum(each.count for each in full) == 2_000
    assert max(len(each.records) for each in full) <= 512 << 10
