"""The durable log of a bucket's state, and the copies that workers keep of it."""

import json
import random
import struct

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c

from headrace.crash_points import STATE_POINTS, watch
from headrace.errors import CorruptionError
from headrace.streams.engine.state.files import BucketFiles
from headrace.streams.engine.state.log import append, load
from headrace.streams.event_time import NO_WATERMARK
from headrace.streams.operators import WindowOperator, agg, tumbling

OPERATOR = WindowOperator(
    window=tumbling("1 minute"), keys=("key",), aggregates=(("n", agg.count()), ("sum", agg.sum("value")))
)


@pytest.fixture
def log(tmp_path):
    return BucketFiles(tmp_path, 3, "q")


class KilledError(Exception):
    """An attempt ends here, as it does when its worker is killed."""


@pytest.fixture(scope="module")
def killed_at():
    """Steps at which an attempt ends; emptied by whoever does."""
    found = []

    def die(step):
        if step in found:
            found.clear()
            raise KilledError

    watch(die)
    return found


def rows(chance, count=20):
    times = np.array([chance.randrange(600_000_000) for _ in range(count)], np.int64)
    return pa.table(
        {
            "key": pa.array([chance.choice("abc") for _ in range(count)], pa.string()),
            "value": pa.array([chance.randrange(100) for _ in range(count)], pa.int64()),
            "_partition": pa.array([0] * count, pa.int32()),
            "_offset": pa.array(range(count), pa.int64()),
            "_event_time": times,
            "_watermark": pa.array([NO_WATERMARK] * count, pa.int64()),
        }
    )


def loaded(log, cached, batch):
    return load(log, lambda: [OPERATOR.new_state()], cached, batch, NO_WATERMARK)


def step(log, cached, batch, table, watermark_us=0):
    copy = loaded(log, cached, batch)
    copy.watermark_us = max(copy.watermark_us, watermark_us)
    result = copy.states[0].advance([OPERATOR.partial(table)], copy.watermark_us)
    append(log, copy, batch, [result.delta])
    return copy, result.changes


def fold(changes):
    return sorted(
        (row["key"], row["window_start"], row["after"]["n"], row["after"]["sum"])
        for table in changes
        if table is not None
        for row in table.to_pylist()
    )


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(each, marks=pytest.mark.slow) for each in range(2, 40))]
)
def test_whatever_attempts_fail_and_whichever_worker_goes_on_the_results_are_the_same(
    seed, tmp_path, killed_at
):
    print(f"seed {seed}")
    chance = random.Random(seed)
    batches = [(rows(chance), number * 15_000_000) for number in range(60)]
    batches.append((rows(chance, 0), 10**12))
    plain, copy, expected = BucketFiles(tmp_path, 0, "q"), None, []
    for batch, (table, watermark_us) in enumerate(batches):
        copy, changes = step(plain, copy, batch, table, watermark_us)
        expected.append(changes)

    log, workers, found = BucketFiles(tmp_path, 1, "q"), [None, None, None], []
    for batch, (table, watermark_us) in enumerate(batches):
        while chance.random() < 0.4:  # an attempt that fails before, while or after it writes its entry
            worker = chance.randrange(3)
            match chance.choice(("before", "after", *STATE_POINTS)):
                case "before":
                    workers[worker] = loaded(log, workers[worker], batch)
                case "after":
                    workers[worker], _ = step(log, workers[worker], batch, table, watermark_us)
                case cut:
                    killed_at.append(cut)
                    with pytest.raises(KilledError):
                        step(log, workers[worker], batch, table, watermark_us)
                    workers[worker] = None
        worker = chance.randrange(3)
        workers[worker], changes = step(log, workers[worker], batch, table, watermark_us)
        found.append(changes)
    assert fold(found) == fold(expected)
    assert fold(found)


def test_the_log_stays_short_because_snapshots_replace_what_they_hold(log, tmp_path):
    chance, copy, sizes = random.Random(1), None, []
    for batch in range(200):
        copy, _ = step(log, copy, batch, rows(chance, 3))
        sizes.append(len(list((tmp_path / "3").iterdir())))
    assert max(sizes) <= 35
    assert sizes.count(2) >= 3


def many_keys(count):
    table = rows(random.Random(1), count)
    return table.set_column(0, "key", pa.array([f"{each:040}" for each in range(count)]))


def test_a_batch_writes_no_more_of_a_large_state_than_of_a_small_one(log):
    copy, _ = step(log, None, 0, many_keys(60_000))
    megabytes = copy.head.snapshot_bytes / (1 << 20)
    assert 1.2 < megabytes < 5
    batch = 0
    while not batch or copy.head.base == 0:
        batch += 1
        copy, _ = step(log, copy, batch, rows(random.Random(batch), 3))
    assert 32 * megabytes < batch < 32 * megabytes + 2


def test_what_is_left_of_a_large_state_is_written_soon(log):
    copy, _ = step(log, None, 0, many_keys(60_000))
    batch = 0
    while not batch or copy.head.base == 0:
        batch += 1
        copy, _ = step(log, copy, batch, rows(random.Random(batch), 0), watermark_us=10**12)
    assert batch == 33 and copy.head.snapshot_bytes < 10_000


def test_a_batch_can_be_run_again_when_it_had_become_a_snapshot(log):
    chance, copy, before = random.Random(1), None, None
    tables = [rows(chance, 3) for _ in range(40)]
    for batch, table in enumerate(tables):
        before, (copy, _) = copy, step(log, loaded(log, None, batch), batch, table)
        if copy.head.base == batch and batch:
            break
    assert batch > 30
    again, _ = step(log, None, batch, tables[batch])
    assert again.states[0].row_count and again.head.base == batch
    assert loaded(log, None, batch).head == before.head


def test_a_copy_that_is_up_to_date_is_used_as_it_is(log):
    copy, _ = step(log, None, 0, rows(random.Random(1)))
    assert loaded(log, copy, 1) is copy


def test_a_copy_that_is_behind_is_brought_up_to_date(log):
    chance = random.Random(1)
    behind, _ = step(log, None, 0, rows(chance))
    step(log, loaded(log, None, 1), 1, rows(chance))
    assert loaded(log, behind, 2) is behind
    assert behind.head.number == 1


def test_a_copy_of_another_attempt_is_not_trusted(log):
    failed, _ = step(log, None, 0, rows(random.Random(1)))
    step(log, None, 0, rows(random.Random(2)))
    assert loaded(log, failed, 1) is not failed


def test_a_copy_that_is_ahead_is_not_used_for_the_batch_it_has_seen(log):
    chance = random.Random(1)
    step(log, None, 0, rows(chance))
    ahead, _ = step(log, None, 1, rows(chance))
    assert loaded(log, ahead, 1) is not ahead


def test_state_that_is_missing_or_damaged_is_never_taken_for_none(log, tmp_path):
    step(log, None, 0, rows(random.Random(1)))
    path = tmp_path / "3" / f"{0:012}"
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:10], b"", whole[:-5] + bytes(5), whole[:30] + b"?" + whole[31:]):
        path.write_bytes(damaged)
        with pytest.raises(CorruptionError, match="batch 0 is not what was written; rebuild"):
            loaded(log, None, 1)
    path.unlink()
    with pytest.raises(CorruptionError, match="batch 0 is not there; rebuild"):
        loaded(log, None, 1)


def test_a_flipped_bit_of_state_is_damage_that_is_named_with_what_to_do(log, tmp_path):
    step(log, None, 0, rows(random.Random(1)))
    path = tmp_path / "3" / f"{0:012}"
    whole = path.read_bytes()
    for position in [*range(300), *range(300, len(whole), 37)]:
        flipped = bytearray(whole)
        flipped[position] ^= 1 << (position % 8)
        path.write_bytes(flipped)
        with pytest.raises(CorruptionError, match="batch 0 is not what was written; rebuild") as damage:
            loaded(log, None, 1)
        assert str(path) in str(damage.value)


def test_what_an_attempt_left_when_it_was_killed_is_removed_with_the_entries_of_its_time(log, tmp_path):
    chance, copy = random.Random(1), None
    copy, _ = step(log, copy, 0, rows(chance))
    (tmp_path / "3" / f"{0:012}.0123456789abcdef").write_bytes(b"half")
    for batch in range(1, 40):
        copy, _ = step(log, copy, batch, rows(chance, 3))
    assert not [each.name for each in (tmp_path / "3").iterdir() if "." in each.name]


def test_state_of_another_query_is_refused_with_whose_it_is_and_what_to_do(log, tmp_path):
    """As on an executor whose folder nobody else sees: a rebuild could not remove what is there."""
    step(log, None, 0, rows(random.Random(1)))
    rebuilt = BucketFiles(tmp_path, 3, "another")
    with pytest.raises(CorruptionError, match=r"(?s)query q, and not of query another.*share.*--rebuild"):
        loaded(rebuilt, None, 1)


def test_state_of_before_it_named_its_query_is_refused(log, tmp_path):
    step(log, None, 0, rows(random.Random(1)))
    path = tmp_path / "3" / f"{0:012}"
    whole = path.read_bytes()
    _, size, _ = struct.unpack("<8sII", whole[:16])
    fields = json.loads(whole[16 : 16 + size])
    del fields["query"], fields["made_from"]
    old = json.dumps(fields).encode()
    path.write_bytes(struct.pack("<8sII", b"hr.state", len(old), crc32c(old)) + old + whole[16 + size :])
    with pytest.raises(CorruptionError, match=r"older version.*--rebuild"):
        loaded(log, None, 1)


def test_an_entry_made_from_another_than_the_one_before_it_is_refused(log, tmp_path):
    chance = random.Random(1)
    tables = [rows(chance) for _ in range(3)]
    copy = None
    for batch in range(2):
        copy, _ = step(log, copy, batch, tables[batch])
    first = tmp_path / "3" / f"{0:012}"
    kept = first.read_bytes()
    step(log, None, 0, tables[2])  # as another machine, or a backup, would have it
    with pytest.raises(CorruptionError, match=r"batch 1 was made from another state of batch 0.*--rebuild"):
        loaded(log, None, 2)
    first.write_bytes(kept)
    assert loaded(log, None, 2).head.number == 1
