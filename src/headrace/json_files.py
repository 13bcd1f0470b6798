"""Small JSON files that another process may read at any time: always whole, the old one or the new.

They have a checksum (`headrace.checked_json`); those of earlier versions have none, and are read.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.checked_json import decode_fields, encode_fields

__all__ = ["read_json", "write_json"]


def write_json(path: Path, data: Mapping[str, Any], *, durable: bool = True) -> None:
    """Replaces the file atomically; `durable` for what must survive a crash of the machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    with beside.open("wb") as file:
        file.write(encode_fields(data))
        file.flush()
        if durable:
            os.fsync(file.fileno())
    beside.replace(path)


def read_json(path: Path) -> dict[str, Any] | None:
    """What the file holds; None if there is none. Raises ValueError if it is not what was written."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return decode_fields(data, None).fields
