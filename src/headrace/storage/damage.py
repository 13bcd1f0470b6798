"""Ranges of segment files that are not what was written, remembered across restarts."""

import contextlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import CorruptionError
from headrace.storage.disk import Disk

__all__ = ["Damage", "load_damage", "save_damage"]


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes `start` to `end` (exclusive) of a segment that hold no valid batch.

    Records from `first_offset` up to, not including, `next_offset` are not
    readable; everything else is.
    """

    path: Path
    start: int
    end: int
    first_offset: int
    next_offset: int

    def error(self) -> CorruptionError:
        return CorruptionError(
            f"records {self.first_offset} to {self.next_offset - 1} are damaged and are not served; "
            f"restore the file from a copy, or read on from offset {self.next_offset}",
            path=self.path,
            start=self.start,
            end=self.end,
        )


def load_damage(disk: Disk, path: Path) -> tuple[Damage, ...]:
    """What was found before; an unreadable file counts as none, since damage is found again when read."""
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError, KeyError):
        found = json.loads(disk.read_file(path))
        return tuple(
            Damage(path.parent / d["file"], d["start"], d["end"], d["first_offset"], d["next_offset"])
            for d in found
        )
    return ()


def save_damage(disk: Disk, path: Path, damage: Iterable[Damage]) -> None:
    rows = [
        {
            "file": d.path.name,
            "start": d.start,
            "end": d.end,
            "first_offset": d.first_offset,
            "next_offset": d.next_offset,
        }
        for d in damage
    ]
    disk.replace_file(path, json.dumps(rows, indent=1).encode())
