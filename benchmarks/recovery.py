"""Claim: after a crash a partition opens in at most 2 s per GB of unclean data, however many segments it has.

    python benchmarks/recovery.py [--gb 0.5]

Prints seconds per GB of unclean data for batches of several sizes, first with the
bytes in the page cache (what our code costs), then without where the cache can be
dropped (what the disk adds), and the time to open a partition of 5,000 segments.
The peer is the floor: reading the same bytes and checksumming them, nothing else.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from crc32c import crc32c

from headrace.records import Record, encode_batch, stamp
from headrace.storage import PartitionLog, TopicConfig

GB = 1_000_000_000
CHUNK = 4 * 1024 * 1024
BAR_SECONDS_PER_GB = 2.0


def write_segment(directory: Path, size_bytes: int, batch_bytes: int) -> None:
    """A segment without checkpoint or index: all of it is unclean; sizes differ by up to a third."""
    directory.mkdir(parents=True)
    source = random.Random(batch_bytes)
    sizes = [source.randint(batch_bytes * 2 // 3, batch_bytes * 4 // 3) for _ in range(100)]
    batches = [encode_batch([Record(0, 1_700_000_000_000, None, os.urandom(size - 75))]) for size in sizes]
    with (directory / f"{0:020}.log").open("wb", buffering=1 << 20) as file:
        for offset in range(size_bytes // batch_bytes):
            batch = batches[offset % len(batches)]
            stamp(batch, 0, offset, 0)
            file.write(batch)
        file.flush()
        os.fsync(file.fileno())  # or the next sync, which is not ours to judge, would wait for all of it


def drop_cache(path: Path) -> bool:
    if not hasattr(os, "posix_fadvise"):
        return False
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


def floor_seconds(path: Path) -> float:
    began = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            crc32c(chunk)
    return time.perf_counter() - began


def recovery_seconds(directory: Path, batch_bytes: int) -> float:
    for name in ("checkpoint", f"{0:020}.index"):
        (directory / name).unlink(missing_ok=True)
    began = time.perf_counter()
    log = PartitionLog.open(directory, TopicConfig(segment_bytes=2**31 - 1))
    took = time.perf_counter() - began
    expected = (directory / f"{0:020}.log").stat().st_size
    if log.scanned_bytes != expected or log.torn is not None or log.damage:
        sys.exit(f"recovery of {batch_bytes}-byte batches scanned {log.scanned_bytes} of {expected} bytes")
    log.close()
    return took


def measure(root: Path, size_bytes: int, batch_bytes: int) -> None:
    directory = root / str(batch_bytes)
    write_segment(directory, size_bytes, batch_bytes)
    segment = directory / f"{0:020}.log"
    gigabytes = segment.stat().st_size / GB
    floor_seconds(segment)  # into the page cache
    floor = floor_seconds(segment) / gigabytes
    warm = recovery_seconds(directory, batch_bytes) / gigabytes
    cold = recovery_seconds(directory, batch_bytes) / gigabytes if drop_cache(segment) else float("nan")
    verdict = "ok" if warm <= BAR_SECONDS_PER_GB else "MISSED"
    print(
        f"{batch_bytes:>9,} B batches: {warm:6.2f} s/GB cached, {cold:6.2f} s/GB from disk, "
        f"floor {floor:5.2f} s/GB, ratio {warm / floor:5.1f}  ({verdict}: at most {BAR_SECONDS_PER_GB} s/GB)"
    )
    shutil.rmtree(directory)


def measure_open(root: Path, segments: int) -> None:
    """Segments of one batch each, indexed and sealed as rolls leave them."""
    directory = root / "many"
    directory.mkdir()
    batch = encode_batch([Record(0, 1_700_000_000_000, None, bytes(1000))])
    for offset in range(segments):
        stamp(batch, 0, offset, 0)
        (directory / f"{offset:020}.log").write_bytes(batch)
    PartitionLog.open(directory).close()
    began = time.perf_counter()
    log = PartitionLog.open(directory)
    took = time.perf_counter() - began
    print(f"{segments:,} segments, clean: open in {1000 * took:.1f} ms, {log.scanned_bytes} bytes scanned")
    log.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gb", type=float, default=0.5, help="unclean data per batch size")
    parser.add_argument("--dir", type=Path, help="where to write; default: a temporary directory")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="headrace-recovery-", dir=arguments.dir))
    try:
        for batch_bytes in (200, 1_000, 16_000, 1_000_000):
            measure(root, int(arguments.gb * GB), batch_bytes)
        measure_open(root, 5000)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
