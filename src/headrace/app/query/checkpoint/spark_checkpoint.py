"""What Spark has noted in a query's checkpoint: the last batch that is done, and where it ended.

Beside each file Hadoop writes its checksums, `.NAME.crc`: "crc", 0, bytes to a checksum int32,
and the CRC-32 of each so many bytes, big-endian. They are compared, as Spark itself will.
"""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

from headrace.errors import ConfigError

__all__ = ["forget_unbegun", "is_under_way", "last_begun", "last_commit", "last_position"]

_HEADER = struct.Struct(">4sI")


def last_commit(folder: Path) -> int:
    """The last batch that the checkpoint knows to be done; -1 before the first."""
    return _last(folder / "checkpoint" / "commits")


def last_begun(folder: Path) -> int:
    """The last batch that the checkpoint knows of, done or not; -1 before the first."""
    return _last(folder / "checkpoint" / "offsets")


def is_under_way(folder: Path) -> bool:
    """Whether a batch was begun that is not known to be done: it will be computed again."""
    return last_begun(folder) > last_commit(folder)


def forget_unbegun(folder: Path, begun: int) -> bool:
    """Removes what Spark has planned behind the batch that may have been begun; whether none is under way.

    A batch that failed half-way stays: it is repeated.
    """
    offsets = folder / "checkpoint" / "offsets"
    for each in range(begun + 1, last_begun(folder) + 1):
        (offsets / f".{each}.crc").unlink(missing_ok=True)
        (offsets / str(each)).unlink(missing_ok=True)
    return not is_under_way(folder)


def _last(folder: Path) -> int:
    names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def last_position(folder: Path) -> dict[str, Any] | None:
    """Where the source was after that batch, as it told Spark; None before the first.

    Raises ConfigError if the file is damaged.
    """
    last = last_commit(folder)
    if last < 0:
        return None
    path = folder / "checkpoint" / "offsets" / str(last)
    try:
        data = path.read_bytes()
        _check(data, path.with_name(f".{path.name}.crc"))
        found = json.loads(data.splitlines()[-1])  # behind a version and a line of Spark's own
        if not isinstance(found, dict):
            raise ValueError("it is not what was written")
        return found
    except (OSError, ValueError, IndexError) as error:
        raise ConfigError(
            f"{path} is damaged ({error}); restore the folder {folder} from a copy, or rebuild its views "
            "from the log: headrace run --rebuild"
        ) from None


def _check(data: bytes, checks: Path) -> None:
    """Raises ValueError if the bytes are not those that the checksums are of; they need not be there."""
    if not checks.is_file():
        return
    told = checks.read_bytes()
    start, size = _HEADER.unpack_from(told) if len(told) >= _HEADER.size else (b"", 0)
    if start != b"crc\0" or not size:
        raise ValueError(f"{checks.name} is not what was written")
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    if told[_HEADER.size :] != b"".join(zlib.crc32(each).to_bytes(4, "big") for each in parts):
        raise ValueError("its checksum does not hold")
