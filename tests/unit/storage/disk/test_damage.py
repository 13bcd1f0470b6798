import pytest

from headrace.errors import CorruptionError, DiskError
from headrace.records import decode_batch, stamp
from headrace.testing.batches import batch, batches_in, commit, read_all

FIRST = "00000000000000000000.log"


@pytest.fixture
def sealed(disk, open_log):
    """A closed log whose first segment, of ten batches, is sealed; its path, and each batch's position."""
    log = open_log(disk)
    positions = []
    for number in range(10):
        positions.append(log.size_bytes)
        commit(log, batch(b"value %d" % number, b"x" * 60))
    log.roll()
    commit(log, batch(b"behind"))
    log.close()
    return log.path, [*positions, positions[-1] * 10 // 9]


def readable(log):
    """Every record that can be read, going around damage as a careful consumer does."""
    records, offset = [], log.start_offset
    while offset < log.high_watermark:
        try:
            data = log.read(offset, 4096)
        except CorruptionError:
            (offset,) = [d.next_offset for d in log.damage if d.first_offset <= offset < d.next_offset]
            continue
        for position, header in batches_in(data):
            records += [record for record in decode_batch(data, position) if record.offset >= offset]
            offset = header.next_offset
    return records


def offsets(records):
    return [record.offset for record in records]


def test_a_flip_at_any_byte_of_a_sealed_batch_is_reported_and_all_else_is_served(disk, open_log, sealed):
    path, positions = sealed
    start, end = positions[4], positions[5]
    for position in range(start, end):
        after = disk.after_power_cut()
        after.flip(path / FIRST, position, 0x20)
        log = open_log(after)
        assert offsets(readable(log)) == [n for n in range(21) if n not in (8, 9)]
        (damage,) = log.damage
        assert (damage.path, damage.start, damage.end) == (path / FIRST, start, end)
        assert (damage.first_offset, damage.next_offset) == (8, 10)


@pytest.mark.parametrize("number", [0, 9])
def test_damage_at_either_end_of_a_segment_stays_within_it(disk, open_log, sealed, number):
    path, positions = sealed
    disk.flip(path / FIRST, positions[number] + 9)  # in the length: the chain of batches breaks
    log = open_log(disk)
    assert offsets(readable(log)) == [n for n in range(21) if n not in (2 * number, 2 * number + 1)]


def test_two_damaged_batches_are_both_walked_around(disk, open_log, sealed):
    path, positions = sealed
    disk.flip(path / FIRST, positions[2] + 70)
    disk.flip(path / FIRST, positions[6] + 8)
    log = open_log(disk)
    assert offsets(readable(log)) == [n for n in range(21) if n not in (4, 5, 12, 13)]
    assert len(log.damage) == 2


def test_an_offset_inside_damage_is_refused_with_file_and_range(disk, open_log, sealed):
    path, positions = sealed
    disk.flip(path / FIRST, positions[4] + 70)
    log = open_log(disk)
    for _ in range(2):
        with pytest.raises(CorruptionError, match=r"8 to 9 are damaged.*read on from offset 10") as refused:
            log.read(8, 100)
        assert (refused.value.path, refused.value.start, refused.value.end) == (
            path / FIRST,
            positions[4],
            positions[5],
        )


def test_a_read_that_meets_damage_returns_what_is_before_it(disk, open_log, sealed):
    path, positions = sealed
    disk.flip(path / FIRST, positions[4] + 70)
    assert len(open_log(disk).read(0, 1 << 20)) == positions[4]


def test_a_stream_that_meets_damage_breaks_off_and_the_next_one_ends_before_it(disk, open_log, sealed):
    path, positions = sealed
    disk.flip(path / FIRST, positions[4] + 70)
    log = open_log(disk)
    served = b""
    with pytest.raises(CorruptionError), log.locate(0, 1 << 20) as extent:
        while chunk := extent.read_chunk(50):
            served += chunk
    assert len(served) < positions[5]
    with log.locate(0, 1 << 20) as extent:
        assert extent.size_bytes == positions[4]


def test_known_damage_is_remembered_across_restarts(disk, open_log, sealed):
    path, positions = sealed
    disk.flip(path / FIRST, positions[4] + 70)
    log = open_log(disk)
    readable(log)
    log.close()
    assert open_log(disk).damage == log.damage != ()


def test_retention_forgets_damage_with_its_segment(disk, open_log, sealed):
    path, positions = sealed
    disk.flip(path / FIRST, positions[4] + 70)
    log = open_log(disk)
    readable(log)
    log.delete_before(20)
    assert log.damage == ()
    log.close()
    assert open_log(disk).damage == ()


def test_a_flip_at_any_byte_of_an_index_harms_nobody(disk, open_log, sealed):
    path, _ = sealed
    index = path / "00000000000000000000.index"
    for position in range(len(disk.read_file(index))):
        after = disk.after_power_cut()
        after.flip(index, position, 0x04)
        log = open_log(after)
        assert offsets(readable(log)) == list(range(21))
        assert log.damage == ()
        assert after.read_file(index) == disk.read_file(index)  # rebuilt as it was


def test_an_index_cut_short_or_gone_is_rebuilt(disk, open_log, sealed):
    path, _ = sealed
    index = path / "00000000000000000000.index"
    whole = disk.read_file(index)
    disk.cut(index, 30)
    assert offsets(read_all(open_log(disk))) == list(range(21))
    disk.unlink(index)
    assert offsets(read_all(open_log(disk.after_kill()))) == list(range(21))
    assert disk.read_file(index) == whole


def test_a_sealed_segment_whose_end_was_cut_off_is_reported_not_skipped(disk, open_log, sealed):
    path, positions = sealed
    for size in (positions[9], positions[9] + 5):
        after = disk.after_power_cut()
        after.cut(path / FIRST, size)
        log = open_log(after)
        with pytest.raises(CorruptionError):
            read_all(log, 18)
        assert offsets(readable(log)) == [*range(18), 20]


def test_a_batch_inside_a_records_value_is_not_taken_for_one_of_the_log(disk, open_log):
    inner = batch(b"forged")
    stamp(inner, 0, 3, 0)
    log = open_log(disk)
    commit(log, batch(b"a"))
    start = log.size_bytes
    commit(log, batch(b"pad" * 10 + bytes(inner) + b"pad" * 10), batch(b"c"))
    log.roll()
    log.close()
    disk.flip(log.path / FIRST, start + 9)
    log = open_log(disk)
    assert [record.value for record in readable(log)] == [b"a", b"c"]


def test_a_segment_file_that_is_gone_is_named_not_skipped(disk, open_log, sealed):
    path, _ = sealed
    log = open_log(disk)
    disk.unlink(path / FIRST)
    with pytest.raises(DiskError, match="is gone"):
        log.read(0, 100)


def test_a_search_by_time_goes_around_damage(disk, open_log):
    log = open_log(disk)
    positions = []
    for number in range(5):
        positions.append(log.size_bytes)
        commit(log, batch(b"v", timestamp_ms=1000 + number))
    log.roll()
    log.close()
    disk.flip(log.path / FIRST, positions[2] + 62)
    log = open_log(disk)
    assert log.offset_for_time(1002).offset == 3
    assert len(log.damage) == 1
