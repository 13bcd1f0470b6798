"""What a snapshot consists of.

```text
snapshot.json                                    what it is of; written last
checkpoints/queries/STREAM/manifest.00000000     as at a URL, with the epoch 0, which no run has
checkpoints/queries/STREAM/QUERY.BATCH.00000000
state/QUERY/STAGE/BUCKET/BATCH.TOKEN
```
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.app.query.checkpoint import FOLDER
from headrace.checked_json import decode_fields, encode_fields
from headrace.errors import ConfigError
from headrace.objects import Objects, is_url, open_objects, require_supported
from headrace.streams.engine import MANIFEST

__all__ = [
    "EPOCH",
    "FILE",
    "Snapshot",
    "SnapshotQuery",
    "manifest_name",
    "open_place",
    "read_snapshot",
]

EPOCH = 0
FILE = "snapshot.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotQuery:
    """One query: the last batch that is done (-1: none was begun), and whether the next is under way."""

    name: str
    query: str
    batch: int
    is_under_way: bool
    buckets: int
    state_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A complete one; `id` tells it from any other. `left_behind` are stores of views that are files."""

    id: str
    app: str
    at: float
    queries: tuple[SnapshotQuery, ...]
    left_behind: Mapping[str, str]
    format: int = _FORMAT

    def encode(self) -> bytes:
        return encode_fields(asdict(self))


def read_snapshot(place: Objects) -> Snapshot | None:
    """The snapshot there; None if there is none, or it is not complete.

    Raises ConfigError if it is damaged.
    """
    data = place.get(FILE)
    if data is None:
        return None
    try:
        fields: dict[str, Any] = decode_fields(data, ()).fields
        if fields["format"] > _FORMAT:
            raise ValueError(f"a newer version wrote it (format {fields['format']}, known is {_FORMAT})")
        queries = tuple(SnapshotQuery(**each) for each in fields["queries"])
        return Snapshot(**{**fields, "queries": queries})
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{FILE} at {place.url} cannot be used: {error}; use another snapshot") from None


def open_place(setting: str, given: str) -> Objects:
    """A folder or a URL; raises ConfigError if nothing can be kept there."""
    if is_url(given):
        require_supported(setting, given)
        return open_objects(given)
    return open_objects(Path(given).resolve().as_uri())


def manifest_name(query: str) -> str:
    """Where the manifest of a query is."""
    return f"{FOLDER}/{query}/{MANIFEST}.{EPOCH:08}"
