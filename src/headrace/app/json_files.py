"""Small files of JSON that another process may read at any moment: always whole, the old one or the new."""

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["read_json", "write_json"]


def write_json(path: Path, data: Any, *, durable: bool = True) -> None:
    """Replaces the file in one step; `durable` is for what must outlive a crash of the machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    with beside.open("w", encoding="utf-8") as file:
        json.dump(data, file, indent=2)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    beside.replace(path)


def read_json(path: Path) -> Any | None:
    """What the file holds; None if there is none. Raises ValueError if it is not JSON."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return json.loads(text)
