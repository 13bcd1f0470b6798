"""The log and its producers: retries, markers, what committed readers see, snapshots and replay."""

import pytest

from headrace.errors import DiskError, RequestError
from headrace.records import Marker, Record, decode_batch, encode_batch
from headrace.storage import AbortedTransaction, OpenTransaction
from headrace.storage.partition.producer_replay import CHUNK_BYTES
from headrace.testing.batches import batch, batches_in, commit, read_all

SNAPSHOTS = ("producers", "producers-0", "producers-1")


def sent(sequence, *values, producer=1, epoch=0, key=None, transactional=False, timestamp_ms=1000):
    return encode_batch(
        [Record(0, timestamp_ms, key, value) for value in values or (b"v",)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def ended(log, *, producer=1, epoch=0, is_commit=True):
    offset = log.append_marker(Marker(producer, epoch, 0, is_commit), now_ms=1)
    log.commit()
    return offset


def committed(log, offset=0, max_bytes=1 << 20):
    """Values that a reader of committed records gets, as a client filters them."""
    values = []
    while (extent := log.locate(offset, max_bytes, committed=True)) is not None:
        with extent:
            data = extent.read_whole()
            void = log.aborted(offset, extent.offset_bound())
        for position, header in batches_in(data):
            offset = header.next_offset
            if header.is_control or any(_voids(each, header) for each in void):
                continue
            values += [record.value for record in decode_batch(data, position)]
    return values


def _voids(each, header):
    return (
        header.is_transactional
        and each.producer_id == header.producer_id
        and each.first_offset <= header.base_offset <= each.last_offset
    )


def code_of(call, *args, **named):
    with pytest.raises(RequestError) as caught:
        call(*args, **named)
    return caught.value.code


def test_what_is_synced_while_a_committed_reader_is_answered_is_not_among_it(disk, open_log):
    """Its transaction is open, and the last stable offset was read before it came."""
    log = open_log(disk)
    log.append(sent(0, b"before", producer=2), now_ms=1)
    log.commit()
    stable = log.last_stable_offset
    log.append(sent(0, b"open", transactional=True), now_ms=1)
    log.append(sent(1, b"behind", producer=2), now_ms=1)
    log.commit()
    with log._reader.extent(0, 1 << 20, before=stable) as extent:
        assert [header.base_offset for _, header in batches_in(extent.read_whole())] == [0]


def test_a_retry_gets_the_offset_of_the_first_time_and_adds_nothing(disk, open_log):
    log = open_log(disk)
    commit(log, batch(b"other"), sent(0, b"a", b"b"))
    again = log.append(sent(0, b"a", b"b"), now_ms=2)
    assert (again.base_offset, again.last_offset, again.duplicate) == (1, 2, True)
    assert log.end_offset == 3 and log.pending_bytes == 0


def test_a_retry_of_a_batch_that_is_not_synced_yet_waits_for_that_one(disk, open_log):
    log = open_log(disk)
    log.append(sent(0), now_ms=1)
    again = log.append(sent(0), now_ms=1)
    assert again.duplicate and not log.acknowledged(again.last_offset, log.generation)
    log.commit()
    assert log.acknowledged(again.last_offset, log.generation)


def test_a_batch_dropped_by_a_full_disk_is_no_duplicate_when_it_comes_again(disk, open_log):
    log = open_log(disk)
    commit(log, sent(0))
    log.append(sent(1, b"x" * 500), now_ms=1)
    disk.capacity_bytes = disk.used_bytes() + 10
    with pytest.raises(DiskError):
        log.commit()
    assert [state.last_sequence for state in log.producers()] == [0]
    disk.capacity_bytes = None
    again = log.append(sent(1, b"x" * 500), now_ms=1)
    assert (again.base_offset, again.duplicate) == (1, False)
    assert log.append(sent(0), now_ms=1).duplicate


def test_a_refused_batch_leaves_the_log_as_it_was(disk, open_log):
    log = open_log(disk)
    commit(log, sent(0))
    assert code_of(log.append, sent(2), now_ms=1) == 45
    assert log.end_offset == 1 and log.pending_bytes == 0
    assert log.append(sent(1), now_ms=1).base_offset == 1


def test_a_retry_tells_the_time_at_which_it_was_appended_first(disk, open_log):
    log = open_log(disk, message_timestamp_type="LogAppendTime")
    commit(log, sent(0), now_ms=50)
    assert log.append(sent(0), now_ms=99).timestamp_ms == 50


@pytest.mark.parametrize("how", ["close", "kill", "power cut"])
@pytest.mark.parametrize("without", [(), SNAPSHOTS[1:], SNAPSHOTS], ids=["all", "sealed only", "none"])
def test_a_retry_after_a_restart_gets_its_offset_from_whatever_snapshot_is_left(disk, open_log, how, without):
    log = open_log(disk, segment_bytes=400)
    for number in range(20):
        commit(log, batch(b"other"), sent(number // 3, producer=number % 3), now_ms=number * 2000)
    sequences = {state.producer_id: state.last_sequence for state in log.producers()}
    if how == "close":
        log.close()
    disk = disk.after_power_cut() if how == "power cut" else disk.after_kill()
    for name in without:
        if disk.exists(log.path / name):
            disk.unlink(log.path / name)
    again = open_log(disk, segment_bytes=400)
    assert {state.producer_id: state.last_sequence for state in again.producers()} == sequences
    for number in range(6, 20):
        retried = again.append(sent(number // 3, producer=number % 3), now_ms=1)
        assert (retried.base_offset, retried.duplicate) == (2 * number + 1, True)


def test_a_snapshot_that_speaks_of_more_than_the_log_has_is_not_believed(disk, open_log):
    log = open_log(disk)
    commit(log, sent(0))
    size = log.size_bytes
    commit(log, sent(1))
    log.close()
    disk.cut(log.path / f"{0:020}.log", size)
    disk.unlink(log.path / "checkpoint")
    again = open_log(disk)
    assert again.high_watermark == 1
    assert disk.exists(log.path / "producers-0") and not disk.exists(log.path / "producers-1")
    assert again.append(sent(1), now_ms=1).duplicate is False


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_spoiled_snapshot_is_not_believed(disk, open_log, name):
    log = open_log(disk, segment_bytes=400)
    for number in range(12):
        commit(log, sent(number), now_ms=number * 2000)
    log.close()
    disk = disk.after_power_cut()
    for position in range(0, len(disk.read_file(log.path / name)), 7):
        disk.flip(log.path / name, position)
        again = open_log(disk, segment_bytes=400)
        assert again.append(sent(11), now_ms=1).base_offset == 11
        disk.flip(log.path / name, position)


def test_opening_after_a_clean_stop_replays_nothing(disk, open_log, monkeypatch):
    log = open_log(disk, segment_bytes=400)
    commit(log, *[sent(number) for number in range(12)])
    log.close()
    walked = []
    monkeypatch.setattr(
        "headrace.storage.partition.producer_replay._Replay.run", lambda self: walked.append(self) or 0
    )
    assert open_log(disk, segment_bytes=400).append(sent(11), now_ms=1).duplicate
    assert walked == []


def test_a_log_from_before_snapshots_is_walked_once(disk, open_log):
    log = open_log(disk, segment_bytes=400)
    commit(log, *[sent(number) for number in range(12)])
    log.close()
    for name in SNAPSHOTS:
        if disk.exists(log.path / name):
            disk.unlink(log.path / name)
    assert open_log(disk, segment_bytes=400).append(sent(11), now_ms=1).base_offset == 11
    assert disk.exists(log.path / "producers")


@pytest.mark.parametrize("at", [3, 8, 12, 30], ids=["offset", "length", "epoch", "body"])
def test_producers_behind_damage_are_known_when_the_whole_log_is_walked(disk, open_log, at):
    log = open_log(disk, segment_bytes=1000)
    places = []
    for number in range(30):
        places.append((log.path / max(n for n in disk.list(log.path) if n.endswith(".log")), log.size_bytes))
        commit(log, sent(number // 3, producer=number % 3))
    log.close()
    for name in SNAPSHOTS:
        if disk.exists(log.path / name):
            disk.unlink(log.path / name)
    first = [path for path, _ in places].index(places[4][0])
    disk.flip(places[4][0], places[4][1] - places[first][1] + at)
    again = open_log(disk, segment_bytes=1000)
    assert {(each.producer_id, each.last_sequence) for each in again.producers()} == {(0, 9), (1, 9), (2, 9)}
    assert again.append(sent(9, producer=1), now_ms=1).base_offset == 28


def test_batches_larger_than_a_chunk_are_walked_over(disk, open_log):
    log = open_log(disk)
    commit(log, sent(0, bytes(CHUNK_BYTES + 1000)), sent(1), sent(0, bytes(CHUNK_BYTES), producer=2))
    for name in SNAPSHOTS:
        if disk.exists(log.path / name):
            disk.unlink(log.path / name)
    again = open_log(disk.after_kill())
    assert again.append(sent(1), now_ms=1).base_offset == 1
    assert [each.last_sequence for each in again.producers()] == [1, 0]


def test_checkpoints_write_no_more_for_many_producers_than_those_write(disk, open_log):
    log = open_log(disk)
    commit(log, *[sent(0, producer=number) for number in range(200)])
    steps = len(disk.log)
    for number in range(1, 20):
        commit(log, sent(number), now_ms=2000 * number)
    written = [int(what.split()[1]) for what in disk.log[steps:] if what.startswith("write")]
    assert sum(size > 10_000 for size in written) <= 1


# -- transactions


def test_committed_readers_end_at_the_first_open_transaction(disk, open_log):
    log = open_log(disk)
    commit(log, batch(b"before"), sent(0, b"open", transactional=True), batch(b"behind"))
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    assert log.open_transactions() == [OpenTransaction(1, 0, 1)]
    assert committed(log) == [b"before"]
    assert log.locate(1, 1000, committed=True) is None
    ended(log)
    assert log.last_stable_offset == 4
    assert committed(log) == [b"before", b"open", b"behind"]


def test_committed_readers_skip_what_was_aborted(disk, open_log):
    log = open_log(disk)
    commit(log, sent(0, b"void", transactional=True), sent(0, b"kept", producer=2, transactional=True))
    assert ended(log, is_commit=False) == 2
    assert log.aborted(0, 10) == [AbortedTransaction(1, 0, 2)]
    assert committed(log) == []
    ended(log, producer=2)
    assert committed(log) == [b"kept"]
    commit(log, sent(1, b"later", transactional=True))
    ended(log)
    assert committed(log) == committed(log, max_bytes=1) == [b"kept", b"later"]


def test_the_last_stable_offset_moves_only_when_the_marker_is_synced(disk, open_log):
    log = open_log(disk)
    commit(log, sent(0, transactional=True))
    log.append_marker(Marker(1, 0, 0, commit=True), now_ms=1)
    assert log.last_stable_offset == 0
    assert log.open_transactions() == []
    log.commit()
    assert log.last_stable_offset == 2


def test_a_marker_is_a_control_batch_in_kafkas_format(disk, open_log):
    log = open_log(disk)
    commit(log, sent(0, transactional=True))
    log.append_marker(Marker(1, 3, 5, commit=True), now_ms=77)
    log.append_marker(Marker(1, 3, 5, commit=False), now_ms=77)
    log.commit()
    data = log.read(1, 10_000)
    headers = list(batches_in(data))
    assert [header.base_offset for _, header in headers] == [1, 2]
    assert all(header.attributes == 0x30 and header.base_sequence == -1 for _, header in headers)
    records = [decode_batch(data, position)[0] for position, _ in headers]
    assert [record.key for record in records] == [bytes((0, 0, 0, 1)), bytes((0, 0, 0, 0))]
    assert {record.value for record in records} == {bytes((0, 0, 0, 0, 0, 5))}


def test_a_marker_of_an_old_epoch_is_refused(disk, open_log):
    log = open_log(disk)
    commit(log, sent(0, epoch=3, transactional=True))
    assert code_of(log.append_marker, Marker(1, 2, 0, commit=True), now_ms=1) == 47
    assert log.end_offset == 1


@pytest.mark.parametrize("without", [(), SNAPSHOTS], ids=["snapshots", "none"])
def test_open_and_aborted_transactions_are_known_after_a_crash(disk, open_log, without):
    log = open_log(disk, segment_bytes=300)
    for number in range(6):
        commit(log, sent(number, b"%d" % number, transactional=True), batch(b"-"))
        ended(log, is_commit=number % 2 == 0)
    commit(log, sent(0, b"open", producer=2, transactional=True))
    before = committed(log), log.aborted(0, 100), log.last_stable_offset, log.open_transactions()
    disk = disk.after_power_cut()
    for name in without:
        if disk.exists(log.path / name):
            disk.unlink(log.path / name)
    again = open_log(disk, segment_bytes=300)
    assert (
        committed(again),
        again.aborted(0, 100),
        again.last_stable_offset,
        again.open_transactions(),
    ) == before
    assert committed(again) == committed(again, max_bytes=1)


def test_deleting_the_beginning_of_an_open_transaction_moves_its_readers_on(disk, open_log):
    log = open_log(disk)
    commit(log, sent(0, b"a", b"b", transactional=True), batch(b"behind"))
    log.delete_before(2)
    assert (log.start_offset, log.last_stable_offset) == (2, 2)
    ended(log, is_commit=False)
    assert committed(log, 2) == [b"behind"]
    log.delete_before(4)
    assert log.aborted(0, 100) == []


def test_an_old_reader_is_told_of_nearby_aborted_transactions_only(disk, open_log):
    log = open_log(disk, segment_bytes=100_000)
    for number in range(50):
        commit(log, sent(number, b"x" * 100, transactional=True))
        ended(log, is_commit=False)
    extent = log.locate(0, 1, committed=True)
    with extent:
        assert 0 < len(log.aborted(0, extent.offset_bound())) < 5


# -- compaction

COMPACT = {"cleanup_policy": "compact", "segment_bytes": 300, "min_cleanable_dirty_ratio": 0.01}


def keyed(log):
    return [(record.key, record.value) for record in read_all(log) if record.key in (b"k", b"l")]


def test_compaction_drops_aborted_records_and_keeps_what_they_would_have_replaced(disk, open_log):
    log = open_log(disk, **COMPACT)
    commit(log, batch(b"old", key=b"k"), sent(0, b"void", key=b"k", transactional=True))
    ended(log, is_commit=False)
    commit(log, *[batch(b"filler", key=b"l") for _ in range(6)])
    assert log.compact(10) > 0
    assert (b"k", b"old") in keyed(log)
    assert (b"k", b"void") not in keyed(log)


def test_compaction_leaves_everything_behind_an_open_transaction(disk, open_log):
    log = open_log(disk, **COMPACT)
    commit(
        log, sent(0, b"open", key=b"k", transactional=True), *[batch(b"%d" % n, key=b"l") for n in range(9)]
    )
    assert log.compact(10) == 0
    assert len(keyed(log)) == 10
    ended(log)
    log.roll()
    assert log.compact(10) > 0
    assert keyed(log) == [(b"k", b"open"), (b"l", b"8")]


def test_compaction_keeps_the_batch_from_which_a_producer_goes_on(disk, open_log):
    log = open_log(disk, **COMPACT)
    commit(log, sent(0, b"a", key=b"k"), sent(1, b"b", b"c", key=b"k"))
    commit(log, *[batch(b"%d" % n, key=b"k") for n in range(9)])
    log.roll()
    assert log.compact(10) > 0
    assert keyed(log) == [(b"k", b"8")]
    log.close()
    for name in SNAPSHOTS:
        if disk.exists(log.path / name):
            disk.unlink(log.path / name)
    again = open_log(disk, **COMPACT)
    retried = again.append(sent(1, b"b", b"c", key=b"k"), now_ms=1)
    assert (retried.base_offset, retried.last_offset, retried.duplicate) == (1, 2, True)
    assert again.append(sent(3, key=b"k"), now_ms=1).duplicate is False


# -- forgetting


def test_idle_producers_are_forgotten_also_by_the_snapshots(disk, open_log):
    log = open_log(disk)
    commit(log, sent(0, producer=1), now_ms=1000)
    commit(log, sent(0, producer=2), now_ms=9000)
    log.forget_idle_producers(10_000, 5000)
    assert [state.producer_id for state in log.producers()] == [2]
    log.close()
    again = open_log(disk)
    assert [state.producer_id for state in again.producers()] == [2]
    assert again.append(sent(17, producer=1), now_ms=1).duplicate is False
