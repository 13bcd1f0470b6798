"""A partition's order of things: the commit, those who wait for it, the checkpoint."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from headrace.broker.log.committer import Committer
from headrace.broker.log.partition import Partition
from headrace.errors import DiskError
from headrace.records import Record, encode_batch, stamp
from headrace.storage import Files, Marker, PartitionLog, QueuedBatch
from headrace.testing.batches import batch, read_all
from headrace.testing.disk import SimulatedDisk

PATH = Path("partition")


class Watched(SimulatedDisk):
    """Tells when the checkpoint's file is opened."""

    def __init__(self):
        super().__init__()
        self.happened = []

    def open(self, path, **how):
        if path.name == "checkpoint":
            self.happened.append("checkpoint")
        return super().open(path, **how)


def test_a_checkpoint_follows_the_acknowledgement_and_the_next_commit_follows_it():
    disk, committer = Watched(), Committer(2)

    async def append_twice():
        partition = Partition(PartitionLog.open(PATH, files=Files(disk)), committer)
        partition.on_records(lambda: disk.happened.append("readers"))
        for number, value in enumerate((b"a", b"b")):
            partition.append(batch(value), now_ms=5000 + number)
            await partition.synced()
            disk.happened.append(value)
        await partition.wait_idle()

    asyncio.run(append_twice())
    committer.close()
    first = [disk.happened.index(each) for each in ("readers", b"a", "checkpoint", b"b")]
    assert first[0] < first[1] < first[3] and first[0] < first[2] < first[3]
    assert disk.happened.count("checkpoint") <= 2  # a new one is opened to be made
    again = PartitionLog.open(PATH, files=Files(disk))
    assert again.high_watermark == 2
    assert again.scanned_bytes == len(batch(b"b"))


def in_a_transaction(number):
    return encode_batch(
        [Record(0, 5000, None, b"x")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=number,
        transactional=True,
    )


def with_partition(use, disk=None):
    """Runs `use(partition)` on an event loop, and closes what it used."""

    async def run():
        committer = Committer(2)
        partition = Partition(PartitionLog.open(PATH, files=Files(disk or SimulatedDisk())), committer)
        try:
            await use(partition)
            await partition.wait_idle()
            assert partition.log.end_offset == partition.log.high_watermark
        finally:
            committer.close()

    asyncio.run(run())


async def begin(partition, number=0):
    partition.append(in_a_transaction(number), now_ms=5000)
    await partition.synced()
    await partition.wait_idle()


def end(partition, may_wait=True):
    partition.append_marker(Marker(7, 0, 0, True), now_ms=5000, may_wait=may_wait)
    return partition.synced()


def test_the_end_of_a_transaction_shares_the_sync_of_the_records_behind_it(monkeypatch):
    monkeypatch.setattr("headrace.broker.log.partition.MARKER_DELAY_S", 3600)

    async def use(partition):
        await begin(partition)
        ended = end(partition)
        await asyncio.sleep(0.01)
        assert not ended.done() and partition.log.high_watermark == 1
        partition.append(in_a_transaction(1), now_ms=5000)
        await ended
        await partition.synced()
        assert partition.log.high_watermark == 3

    with_partition(use)


@pytest.mark.parametrize(
    ("may_wait", "delay_s"), [(True, 0.005), (False, 3600)], ids=["after a moment", "at once"]
)
def test_the_end_of_a_transaction_is_synced_although_nothing_follows(monkeypatch, may_wait, delay_s):
    monkeypatch.setattr("headrace.broker.log.partition.MARKER_DELAY_S", delay_s)

    async def use(partition):
        await begin(partition)
        await asyncio.wait_for(end(partition, may_wait=may_wait), 30)
        assert partition.last_stable_offset == 2

    with_partition(use)


def test_the_end_of_a_transaction_is_synced_at_once_where_a_reader_waits(monkeypatch):
    monkeypatch.setattr("headrace.broker.log.partition.MARKER_DELAY_S", 3600)

    async def use(partition):
        await begin(partition)
        wake = asyncio.Event()
        partition.on_records(wake.set)
        await asyncio.wait_for(end(partition), 30)  # the reader was there before it
        partition.forget(wake.set)
        await begin(partition, 1)
        ended = end(partition)
        partition.on_records(wake.set)  # and comes after it
        await asyncio.wait_for(ended, 30)
        assert partition.last_stable_offset == 4

    with_partition(use)


def test_the_end_of_a_transaction_is_not_left_behind_when_a_partition_is_closed(monkeypatch):
    monkeypatch.setattr("headrace.broker.log.partition.MARKER_DELAY_S", 3600)
    disk = SimulatedDisk()

    async def use(partition):
        await begin(partition)
        end(partition)

    with_partition(use, disk)
    assert PartitionLog.open(PATH, files=Files(disk)).last_stable_offset == 2


def test_a_batch_that_is_alone_is_synced_when_append_returns_and_its_reader_has_been_told():
    async def use(partition):
        told, synced = [], []
        partition.on_records(lambda: told.append(partition.newest))
        partition.append(batch(b"a"), now_ms=5000, alone=True)
        partition.when_synced(synced.append)
        assert synced == [None]
        assert [(newest.base_offset, newest.next_offset) for newest in told] == [(0, 1)]
        assert told[0].octets == partition.log.read(0, 4096)
        assert partition.newest is None

    with_partition(use)


def test_a_batch_that_is_alone_and_finds_the_disk_full_is_refused_and_the_next_one_is_kept():
    disk = SimulatedDisk()

    async def use(partition):
        outcomes = []
        disk.capacity_bytes = disk.used_bytes() + 10
        partition.append(batch(b"no room"), now_ms=5000, alone=True)
        partition.when_synced(outcomes.append)
        disk.capacity_bytes = None
        (refused,) = outcomes
        assert isinstance(refused, DiskError) and refused.full
        partition.append(
            batch(b"room"), now_ms=5000, alone=True
        )  # perhaps on a thread: the loop rests a while
        await asyncio.wait_for(partition.synced(), 60)
        assert [record.value for record in read_all(partition.log)] == [b"room"]

    with_partition(use, disk)


def test_a_batch_that_is_alone_and_whose_sync_fails_is_refused_and_so_is_all_that_follows():
    disk, committer = SimulatedDisk(), Committer(2)

    async def use():
        partition, outcomes = Partition(PartitionLog.open(PATH, files=Files(disk)), committer), []
        disk.failing_syncs = 1
        partition.append(batch(b"lost"), now_ms=5000, alone=True)
        partition.when_synced(outcomes.append)
        (refused,) = outcomes
        assert isinstance(refused, DiskError) and not refused.full
        with pytest.raises(DiskError, match="read-only"):
            partition.append(batch(b"behind it"), now_ms=5000, alone=True)

    asyncio.run(use())
    committer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere batches are always appended")
@pytest.mark.parametrize("awaited", [False, True])
def test_a_slow_disk_bars_the_callers_own_commits_only_if_others_waited_for_them(tmp_path, awaited):
    async def use(partition):
        for number in range(5):
            octets = batch(b"x")
            lone = partition.begin_direct_append(1, len(octets), 5000)
            assert (lone is None) == (awaited and number >= 3)
            if lone is None:
                continue
            stamp(octets, 0, lone.base_offset, 0)
            os.pwrite(lone.fd, octets, lone.position)
            os.fdatasync(lone.fd)
            written = QueuedBatch(octets, lone.base_offset, lone.base_offset + 1, 5000, 5000, None)
            partition.end_direct_append(written, sync_s=9.0, awaited=awaited)
            await partition.wait_idle()  # of chores

    async def run():
        committer = Committer(2)
        try:
            await use(Partition(PartitionLog.open(tmp_path / "log"), committer))
        finally:
            committer.close()

    asyncio.run(run())
