"""Ranges of segment files that are not what was written, remembered across restarts."""

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.checked_json import decode_fields, encode_fields
from headrace.errors import CorruptionError
from headrace.storage.disk.disk import Disk

__all__ = ["Damage", "load_damage", "save_damage"]

logger = logging.getLogger("headrace.storage")


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


def load_damage(disk: Disk, path: Path) -> tuple[Damage, ...] | None:
    """What was found before; None if the file is not what was written: it must be found again then."""
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return ()
    try:
        ranges = _earlier(data) or decode_fields(data, ()).fields["ranges"]
        return tuple(Damage(path.parent / name, *numbers) for name, *numbers in map(_values, ranges))
    except (ValueError, TypeError, KeyError) as error:
        logger.warning("%s: %s; every batch of the partition is checked to find damage again", path, error)
        return None


def _earlier(data: bytes) -> list[dict[str, Any]] | None:
    """The ranges in a file of the earlier format, a list without a checksum; the next range brings one."""
    return list(json.loads(data)) if data.startswith(b"[") else None


def _values(row: dict[str, Any]) -> tuple[Any, ...]:
    values = row["file"], row["start"], row["end"], row["first_offset"], row["next_offset"]
    if [type(value) for value in values] != [str, int, int, int, int]:
        raise ValueError("a field is of another kind")
    return values


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
    disk.replace_file(path, encode_fields({"ranges": rows}))
