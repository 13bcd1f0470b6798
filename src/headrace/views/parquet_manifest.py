"""What a Parquet view consists of, and when its files are merged. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.errors import CorruptionError
from headrace.views.ledger import Ledger

__all__ = ["Manifest", "Part", "merge_from"]

_VERSION = 1
_RATIO = 4
_LEAST_PARTS = 4


@dataclass(frozen=True, slots=True)
class Part:
    """What one batch, or several merged ones, put in place and removed; None where it did nothing so."""

    rows: str | None
    removed: str | None
    count: int

    def files(self) -> list[str]:
        return [each for each in (self.rows, self.removed) if each is not None]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One moment of a view: its ledger and its parts, oldest first.

    `number` grows with every manifest and names new files. `garbage` are files of older
    moments, with the time in ms at which they left: readers may be at them still.
    """

    ledger: Ledger
    parts: tuple[Part, ...] = ()
    number: int = 0
    garbage: dict[str, int] = field(default_factory=dict)

    def followed_by(self, ledger: Ledger, parts: Sequence[Part], now_ms: int) -> "Manifest":
        """The next moment; files that it no longer names become garbage."""
        named = {name for part in parts for name in part.files()}
        gone = {name: now_ms for part in self.parts for name in part.files() if name not in named}
        return Manifest(ledger, tuple(parts), self.number + 1, {**self.garbage, **gone})

    def without_garbage(self, removed: Sequence[str]) -> "Manifest":
        left = {name: since for name, since in self.garbage.items() if name not in removed}
        return replace(self, garbage=left)

    def expired(self, now_ms: int, grace_ms: int) -> list[str]:
        """Files that nobody should be reading any more."""
        return [name for name, since in self.garbage.items() if since + grace_ms <= now_ms]

    def dumps(self) -> str:
        return json.dumps(
            {
                "version": _VERSION,
                "number": self.number,
                "parts": [{"rows": p.rows, "removed": p.removed, "count": p.count} for p in self.parts],
                "ledger": json.loads(self.ledger.dumps()),
                "garbage": self.garbage,
            },
            indent=1,
        )

    @classmethod
    def loads(cls, text: str) -> "Manifest":
        """The manifest that `dumps` was called on; raises CorruptionError on anything else."""
        try:
            data: dict[str, Any] = json.loads(text)
            if data["version"] != _VERSION:
                raise CorruptionError(
                    f"the manifest is of version {data['version']}; this Headrace reads {_VERSION}: "
                    "update Headrace"
                )
            parts = tuple(Part(p["rows"], p["removed"], p["count"]) for p in data["parts"])
            return cls(Ledger.loads(json.dumps(data["ledger"])), parts, data["number"], data["garbage"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptionError(f"this is no manifest of a view: {error!r}") from error


def merge_from(counts: Sequence[int]) -> int | None:
    """From which part on to merge, given their sizes, oldest first; None to leave them.

    Small parts at the end are merged once there are four, with every older one that is
    not more than four times as large as all behind it. Each row is therefore rewritten
    a logarithmic number of times, and there are logarithmically many parts.
    """
    start, total = len(counts), 0
    while start > 0 and (total == 0 or counts[start - 1] <= _RATIO * total):
        start -= 1
        total += max(counts[start], 1)
    return start if len(counts) - start >= _LEAST_PARTS else None
