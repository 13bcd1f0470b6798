"""Real file systems that really fail: a small tmpfs that fills up, and an ext4 whose device cannot write.

The device of the second is a sparse file on a small tmpfs: ext4 believes in 64 MB
and takes the writes, the tmpfs runs out, and the kernel reports it at the sync.
Batches are one page each there, because Linux's loop driver reports a write that
was cut short in the middle as a success, and a disk that lies helps no test.
Mounting needs root; without it these tests are skipped, or fail where
HEADRACE_REQUIRE_REAL_DISKS is 1.
"""

import contextlib
import os
import shutil
import subprocess
import time
from dataclasses import replace

import pyarrow as pa
import pytest

from headrace.errors import DiskError
from headrace.storage import PartitionLog, TopicConfig
from headrace.streams.engine.messages import BlobKind
from headrace.streams.engine.spill import SpillFiles
from headrace.streams.engine.state.files import BucketFiles
from headrace.streams.engine.state.log import Head
from headrace.testing.batches import batch, read_all
from headrace.views import ViewBatch, ViewSchema, open_store, rows_as_changes

COUNTS = ViewSchema("names", ("name",), pa.schema([("name", pa.string())]))
BATCH_BYTES = 100_000
PAGE_BYTES = 4096


@pytest.fixture
def run(without_real_disk):
    """Runs a command of the system, without which there is no disk to test on."""

    def run_command(*command):
        if shutil.which(command[0]) is None:
            without_real_disk(f"there is no {command[0]}")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            without_real_disk(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")

    return run_command


def unmount(target):
    """Also when a failed test left a file open on it."""
    if os.path.ismount(target):
        subprocess.run(["umount", "--lazy", str(target)], check=True)


@pytest.fixture
def mounted(tmp_path, run, without_real_disk):
    """Mounts on demand, and unmounts in reverse order."""
    if os.geteuid() != 0:
        without_real_disk("mounting a file system needs root")
    with contextlib.ExitStack() as stack:

        def mount(name, *how):
            target = tmp_path / name
            target.mkdir(exist_ok=True)
            run("mount", *how, str(target))
            stack.callback(unmount, target)
            return target

        yield mount


def batch_of(name):
    """The first batch of a view, with one row."""
    return ViewBatch("q", 0, rows_as_changes(pa.table({"name": [name]}, schema=COUNTS.columns)))


def write_until_refused(log, size):
    """Acknowledged values, and the error with which the disk gave up."""
    acknowledged = []
    for number in range(5000):
        value = b"%8d " % number + os.urandom(size - 9)
        log.append(batch(value), now_ms=number)
        try:
            log.commit()
        except DiskError as error:
            return acknowledged, error
        acknowledged.append(value)
    raise AssertionError("the disk never refused")


def values(log):
    return [record.value for record in read_all(log, max_bytes=1 << 20)]


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="tmpfs is Linux's")
def test_a_file_system_that_fills_up_loses_nothing_acknowledged_and_goes_on_with_room(mounted):
    root = mounted("small", "-t", "tmpfs", "-o", "size=2m", "tmpfs")
    ballast = root / "ballast"
    ballast.write_bytes(bytes(500_000))
    log = PartitionLog.open(root / "partition", TopicConfig(segment_bytes=300_000))
    acknowledged, error = write_until_refused(log, BATCH_BYTES)
    assert error.full
    assert len(acknowledged) > 5
    assert values(log) == acknowledged
    with pytest.raises(DiskError) as again:
        log.append(batch(os.urandom(BATCH_BYTES)), now_ms=1)
        log.commit()
    assert again.value.full
    ballast.unlink()
    last = os.urandom(BATCH_BYTES)
    log.append(batch(last), now_ms=1)
    assert log.commit() == len(acknowledged) + 1
    assert values(log) == [*acknowledged, last]
    log.close()
    assert values(PartitionLog.open(root / "partition", TopicConfig())) == [*acknowledged, last]


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="tmpfs is Linux's")
def test_retention_makes_room_on_a_file_system_without_a_byte_left(mounted):
    root = mounted("small", "-t", "tmpfs", "-o", "size=2m", "tmpfs")
    config = TopicConfig(segment_bytes=300_000, retention_ms=1000)
    log = PartitionLog.open(root / "partition", config)
    acknowledged, error = write_until_refused(log, BATCH_BYTES)
    assert error.full
    with contextlib.suppress(OSError), (root / "ballast").open("wb", buffering=0) as ballast:
        while ballast.write(bytes(PAGE_BYTES)):
            pass
    start = log.start_offset
    assert log.apply_retention(int(time.time() * 1000) + 1_000_000)
    assert log.start_offset > start
    assert values(log) == acknowledged[log.start_offset :]
    last = os.urandom(BATCH_BYTES)
    log.append(batch(last), now_ms=1)
    assert log.commit() == len(acknowledged) + 1
    log.close()
    again = PartitionLog.open(root / "partition", config)
    assert again.start_offset == log.start_offset
    assert values(again) == [*acknowledged, last][again.start_offset :]


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="tmpfs is Linux's")
def test_state_spill_files_and_views_in_files_say_that_a_file_system_is_full_and_go_on_with_room(mounted):
    root = mounted("small", "-t", "tmpfs", "-o", "size=1m", "tmpfs")
    state, head = (
        BucketFiles(root / "state", 0, "q"),
        Head(
            number=0,
            query="q",
            token="token",
            made_from="",
            base=0,
            watermark_us=0,
            delta_bytes=0,
            snapshot_bytes=0,
        ),
    )
    with pytest.raises(DiskError, match="make room") as refused:
        state.put(head, [os.urandom(2_000_000)])
    assert refused.value.full
    state.put(replace(head, token="other"), [b"less"])
    assert state.entry(0) == (replace(head, token="other"), [b"less"])
    shutil.rmtree(root / "state")
    spill = SpillFiles(root / "spill", min_bytes=1)
    with pytest.raises(DiskError, match="make room") as refused:
        spill.sent(BlobKind.CHANGES, os.urandom(2_000_000))
    assert refused.value.full
    assert spill.received(*spill.sent(BlobKind.CHANGES, bytes(900_000))) == (BlobKind.CHANGES, bytes(900_000))
    spill.remove_all()
    views = open_store(f"parquet:///{root}/views")
    views.prepare(COUNTS)
    views.begin(COUNTS.name, "q")
    with pytest.raises(DiskError, match="make room") as refused:
        views.apply(COUNTS.name, batch_of(os.urandom(1_500_000).hex()))
    assert refused.value.full
    assert views.apply(COUNTS.name, batch_of("less"))
    assert views.read(COUNTS.name).num_rows == 1


def test_a_sync_that_really_fails_makes_the_log_read_only_and_loses_nothing_acknowledged(mounted, run):
    backing = mounted("backing", "-t", "tmpfs", "-o", "size=4m", "tmpfs")
    image = backing / "image"
    with image.open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    run("mkfs.ext4", "-q", "-b", str(PAGE_BYTES), "-O", "^has_journal", str(image))
    root = mounted("disk", "-o", "loop", str(image))
    log = PartitionLog.open(root / "partition", TopicConfig())
    overhead = len(batch(bytes(PAGE_BYTES))) - PAGE_BYTES
    acknowledged, error = write_until_refused(log, PAGE_BYTES - overhead)
    assert not error.full
    assert log.failed is error
    assert len(acknowledged) > 5
    assert values(log) == acknowledged
    with pytest.raises(DiskError, match="read-only"):
        log.append(batch(b"x"), now_ms=1)
    log.close()
    subprocess.run(["umount", str(root)], check=True)
    run("mount", "-o", "remount,size=64m", str(backing))
    root = mounted("disk", "-o", "loop", str(image))
    reopened = PartitionLog.open(root / "partition", TopicConfig())
    assert values(reopened)[: len(acknowledged)] == acknowledged
    assert reopened.high_watermark - len(acknowledged) in (0, 1)
    reopened.close()
