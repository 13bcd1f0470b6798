"""What of a fetch's bytes a reader of committed records may see."""

import pytest

from headrace.client.batches import AbortedRecords, BatchRuns, batch_sizes, bounded_runs, visible_runs, walk
from headrace.errors import CorruptionError
from headrace.records import HEADER_BYTES, Codec, Record, encode_batch, stamp
from headrace.records.columns import decode_columns


def log_of(*batches):
    """Batches with consecutive offsets; each is (values, properties)."""
    buffer, offset = bytearray(), 0
    for values, properties in batches:
        batch = encode_batch([Record(0, 0, *value) for value in values], **properties)
        stamp(batch, 0, offset, 0)
        buffer += batch
        offset += len(values)
    return memoryview(buffer)


def plain(*values):
    return [(None, value) for value in values], {}


def of(producer, *values):
    return [(None, value) for value in values], {
        "producer_id": producer,
        "producer_epoch": 0,
        "transactional": True,
    }


def marker(producer, commit):
    key = b"\0\0" + (b"\0\1" if commit else b"\0\0")
    properties = {"producer_id": producer, "producer_epoch": 0, "transactional": True, "control": True}
    return [(key, b"\0\0\0\0\0\0")], properties


def visible(buffer, *aborted):
    found = visible_runs(buffer, [AbortedRecords(*each) for each in aborted], 0)
    return [
        value for run in found.runs for value in decode_columns(run)["value"].to_pylist()
    ], found.next_offset


def test_consecutive_batches_are_one_run():
    buffer = log_of(plain(b"a", b"b"), plain(b"c"))
    found = visible_runs(buffer, [], 0)
    assert (len(found.runs), found.next_offset) == (1, 3)


def test_a_last_batch_that_was_cut_is_left_for_the_next_fetch():
    whole = log_of(plain(b"a"), plain(b"b"))
    first = len(log_of(plain(b"a")))
    for size in range(first, len(whole)):
        assert visible(whole[:size]) == ([b"a"], 1)


def test_nothing_whole_leaves_the_offset_where_it_was():
    assert visible_runs(memoryview(b""), [], 42).next_offset == 42
    assert visible_runs(log_of(plain(b"a"))[:50], [], 42).next_offset == 42


def test_batches_behind_the_end_are_left_for_the_next_fetch():
    buffer = log_of(plain(b"a"), plain(b"b", b"c"), plain(b"d"))
    for end, seen, following in [(1, [b"a"], 1), (2, [b"a", b"b", b"c"], 3), (3, [b"a", b"b", b"c"], 3)]:
        found = visible_runs(buffer, [], 0, end)
        assert [decode_columns(run)["value"].to_pylist() for run in found.runs] == [seen]
        assert found.next_offset == following


def test_where_compaction_left_nothing_before_the_end_the_next_fetch_begins_there():
    behind = log_of(plain(b"a"), plain(b"b"))[len(log_of(plain(b"a"))) :]
    assert visible_runs(behind, [], 0, 1) == BatchRuns((), 1)


def test_a_damaged_batch_is_refused():
    buffer = bytearray(log_of(plain(b"value")))
    buffer[-1] ^= 1
    with pytest.raises(CorruptionError, match="CRC"):
        list(walk(memoryview(buffer)))


def test_an_absurd_length_is_refused_and_not_waited_for():
    buffer = bytearray(log_of(plain(b"value")))
    buffer[8:12] = (5).to_bytes(4, "big")
    with pytest.raises(CorruptionError):
        list(walk(memoryview(buffer)))


def test_markers_take_an_offset_and_are_not_seen():
    assert visible(log_of(of(1, b"a"), marker(1, commit=True), plain(b"b"))) == ([b"a", b"b"], 3)


def test_an_aborted_transaction_is_not_seen_and_the_next_one_of_its_producer_is():
    buffer = log_of(
        of(1, b"a"), plain(b"x"), of(1, b"b"), marker(1, commit=False), of(1, b"c"), marker(1, commit=True)
    )
    assert visible(buffer, (1, 0)) == ([b"x", b"c"], 6)


def test_only_the_aborting_producer_is_left_out():
    buffer = log_of(of(1, b"a"), of(2, b"b"), marker(1, commit=False), marker(2, commit=True))
    assert visible(buffer, (1, 0)) == ([b"b"], 4)


def test_a_transaction_that_aborts_later_does_not_hide_the_one_before():
    buffer = log_of(of(1, b"a"), marker(1, commit=True), of(1, b"b"), marker(1, commit=False))
    assert visible(buffer, (1, 2)) == ([b"a"], 4)


def decoded(values):
    return len(encode_batch([Record(0, 0, None, value) for value in values]))


@pytest.mark.parametrize("codec", Codec)
def test_sizes_of_batches_are_those_of_their_records_decoded(codec):
    values = [b"x" * 2000] * 50
    buffer = log_of(([(None, value) for value in values], {"codec": codec}), plain(b"small"))
    assert batch_sizes(buffer) == [(0, 50, decoded(values)), (50, 51, decoded([b"small"]))]
    assert codec == Codec.NONE or len(buffer) < decoded(values) / 10


def test_a_batch_that_expands_more_than_the_first_is_not_taken_for_small():
    random = bytes(number * 7919 % 251 for number in range(4000))
    hard, soft = [(None, random)], [(None, b"x" * 400)] * 100
    buffer = log_of((hard, {"codec": Codec.ZSTD}), (soft, {"codec": Codec.ZSTD}))
    (_, _, first), (_, _, second) = batch_sizes(buffer)
    assert first >= len(random) and second >= 100 * 400


def test_a_compressed_batch_that_is_not_whole_is_taken_to_expand_a_lot():
    buffer = log_of(([(None, b"x" * 2000)] * 50, {"codec": Codec.LZ4}))
    cut = buffer[: HEADER_BYTES + 5]
    assert batch_sizes(cut) == [(0, 50, 10 * len(buffer))]


def test_a_run_is_cut_between_batches_by_what_it_takes_decoded():
    buffer = log_of(*[([(None, b"x" * 2000)] * 50, {"codec": Codec.SNAPPY})] * 5)
    found = visible_runs(buffer, [], 0)
    assert found.is_compressed and not visible_runs(log_of(plain(b"a")), [], 0).is_compressed
    (run,) = found.runs
    parts = list(bounded_runs(run, 250_000))
    assert [len(decode_columns(part)) for part in parts] == [100, 100, 50]
    assert b"".join(parts) == bytes(buffer)
    assert len(list(bounded_runs(run, 1))) == 5
    assert [bytes(part) for part in bounded_runs(run, 1 << 30)] == [bytes(buffer)]
