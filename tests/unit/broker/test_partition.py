"""A partition's order of things: the commit, those who wait for it, the checkpoint."""

import asyncio
from pathlib import Path

from headrace.broker.committer import Committer
from headrace.broker.partition import Partition
from headrace.storage import Files, PartitionLog
from headrace.testing.batches import batch
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
