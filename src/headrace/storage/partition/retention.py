"""Retention: which segments are surplus, taking them out of a log, and their files off the disk.

First the list that readers look at changes, under the reader's lock, then the
files go; a reader of one of them keeps it open until done.
"""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.storage.disk import save_damage
from headrace.storage.reading import PartitionReader
from headrace.storage.segments import Segment
from headrace.storage.topic_config import TopicConfig

__all__ = ["detach_before", "release_files", "remove_files", "replace_segments", "surplus"]


def surplus(segments: Sequence[tuple[int, Callable[[], int]]], *, config: TopicConfig, now_ms: int) -> int:
    """How many of the oldest segments may go; never the last, which is being written.

    A segment is given as its size and a function telling its largest timestamp,
    which is asked only of the oldest ones. A segment without timestamps (-1)
    never expires by age; one that compaction left empty goes with the next that does.
    """
    excess = sum(size for size, _ in segments) - config.retention_bytes if config.retention_bytes >= 0 else 0
    count = 0
    for rank, (size, largest_timestamp) in enumerate(segments[:-1]):
        if not size:
            continue
        too_large = excess >= size
        if not too_large and not _expired(largest_timestamp, config.retention_ms, now_ms):
            break
        excess -= size
        count = rank + 1
    return count


def _expired(largest_timestamp: Callable[[], int], retention_ms: int, now_ms: int) -> bool:
    return retention_ms >= 0 and 0 <= largest_timestamp() < now_ms - retention_ms


def detach_before(reader: PartitionReader, offset: int) -> tuple[Segment, ...]:
    """The segments that lie wholly before `offset`, no longer part of the log; the newest always stays."""
    with reader.lock:
        segments = reader.segments
        keep = 0
        while keep + 1 < len(segments) and segments[keep + 1].base_offset <= offset:
            keep += 1
        reader.segments = segments[keep:]
        gone = segments[:keep]
        _forget_damage(reader, {segment.path for segment in gone})
    return gone


def replace_segments(reader: PartitionReader, old: list[Segment], new: Segment) -> None:
    """Puts a compacted segment in the place of those it was made from."""
    with reader.lock:
        rank = reader.segments.index(old[0])
        reader.segments = (*reader.segments[:rank], new, *reader.segments[rank + len(old) :])


def _forget_damage(reader: PartitionReader, paths: set[Path]) -> None:
    left = tuple(damage for damage in reader.damage if damage.path not in paths)
    if left != reader.damage:
        reader.damage = left
        with contextlib.suppress(OSError):  # at the next open, damage of files that are gone is forgotten
            save_damage(reader.files.disk, reader.directory / "damage", left)


def remove_files(reader: PartitionReader, gone: tuple[Segment, ...]) -> list[Path]:
    """Removes the files of segments that are no longer part of the log; their paths."""
    files = reader.files
    for segment in gone:
        files.indexes.drop(segment)
        files.forget(segment.file)
        for path in segment.paths:
            with contextlib.suppress(FileNotFoundError):
                files.disk.unlink(path)
    if gone:
        files.disk.sync_directory(reader.directory)
    return [segment.path for segment in gone]


def release_files(reader: PartitionReader) -> None:
    """Closes the files of a log that is no longer used, once their readers are done."""
    for segment in reader.segments:
        reader.files.indexes.drop(segment)
        reader.files.forget(segment.file)
