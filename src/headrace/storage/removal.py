"""Taking segments out of a log, and their files off the disk.

First the list that readers look at changes, under the reader's lock, then the
files go; whoever reads one of them keeps it open until done.
"""

import contextlib
from pathlib import Path

from headrace.storage.damage import save_damage
from headrace.storage.reader import LogReader
from headrace.storage.segment import Segment

__all__ = ["let_go", "put_in_place", "remove_files", "take_out_before"]


def take_out_before(reader: LogReader, offset: int) -> tuple[Segment, ...]:
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


def put_in_place(reader: LogReader, old: list[Segment], new: Segment) -> None:
    """Puts a compacted segment in the place of those it was made from."""
    with reader.lock:
        rank = reader.segments.index(old[0])
        reader.segments = (*reader.segments[:rank], new, *reader.segments[rank + len(old) :])


def _forget_damage(reader: LogReader, paths: set[Path]) -> None:
    left = tuple(damage for damage in reader.damage if damage.path not in paths)
    if left != reader.damage:
        reader.damage = left
        with contextlib.suppress(OSError):  # at the next open, damage of files that are gone is forgotten
            save_damage(reader.files.disk, reader.directory / "damage", left)


def remove_files(reader: LogReader, gone: tuple[Segment, ...]) -> list[Path]:
    """Removes the files of segments that are no longer part of the log; their paths."""
    files = reader.files
    for segment in gone:
        files.indexes.drop(segment)
        files.forget(segment.file)
        for path in (segment.path, segment.index_path):
            with contextlib.suppress(FileNotFoundError):
                files.disk.unlink(path)
    if gone:
        files.disk.sync_directory(reader.directory)
    return [segment.path for segment in gone]


def let_go(reader: LogReader) -> None:
    """Closes the files of a log that is no longer used, once their readers are done."""
    for segment in reader.segments:
        reader.files.indexes.drop(segment)
        reader.files.forget(segment.file)
