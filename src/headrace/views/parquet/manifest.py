"""The manifest of a Parquet view: its files, and when they are merged. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise

from headrace.checked_json import decode_fields, encode_fields
from headrace.errors import CorruptionError
from headrace.views.ledger import Ledger

__all__ = ["REMEDY", "Part", "ViewManifest", "first_to_merge", "merge_from"]

_VERSION = 1
_EARLIER = ("version", "number", "parts", "ledger", "garbage")
REMEDY = "restore the view's folder from a copy, or remove it and build it anew: headrace run --rebuild"
_RATIO = 4
_LEAST_PARTS = 4


@dataclass(frozen=True, slots=True)
class Part:
    """The files of one batch, or of several merged ones: changed rows and removed keys, or None.

    `crc32c` has the checksum of each; those that earlier versions wrote have none. Parts with the
    same `number`, other than 0, were added together, and have no key in common.
    """

    rows: str | None
    removed: str | None
    count: int
    crc32c: Mapping[str, int] = field(default_factory=dict)
    number: int = 0

    def files(self) -> list[str]:
        return [each for each in (self.rows, self.removed) if each is not None]


@dataclass(frozen=True, slots=True)
class ViewManifest:
    """One version of a view: its ledger and its parts, oldest first.

    `number` grows with every manifest and names new files. `garbage` are files of older
    versions, with the time in ms at which they were dropped: readers may still use them.
    """

    ledger: Ledger
    parts: tuple[Part, ...] = ()
    number: int = 0
    garbage: dict[str, int] = field(default_factory=dict)

    def followed_by(self, ledger: Ledger, parts: Sequence[Part], now_ms: int) -> "ViewManifest":
        """The next version; files that it no longer lists become garbage."""
        named = {name for part in parts for name in part.files()}
        gone = {name: now_ms for part in self.parts for name in part.files() if name not in named}
        garbage = {name: since for name, since in {**self.garbage, **gone}.items() if name not in named}
        return ViewManifest(ledger, tuple(parts), self.number + 1, garbage)

    def without_garbage(self, removed: Sequence[str]) -> "ViewManifest":
        left = {name: since for name, since in self.garbage.items() if name not in removed}
        return replace(self, garbage=left)

    def expired(self, now_ms: int, grace_ms: int) -> list[str]:
        """Garbage that no reader should still be using."""
        return [name for name, since in self.garbage.items() if since + grace_ms <= now_ms]

    def dumps(self) -> bytes:
        """JSON with a checksum."""
        return encode_fields(
            {
                "version": _VERSION,
                "number": self.number,
                "parts": [asdict(each) for each in self.parts],
                "ledger": self.ledger.to_json(),
                "garbage": self.garbage,
            }
        )

    @classmethod
    def loads(cls, text: bytes) -> "ViewManifest":
        """The manifest that `dumps` was called on; raises CorruptionError on anything else.

        Those of earlier versions have no checksum.
        """
        try:
            data = decode_fields(text, _EARLIER).fields
            if data["version"] != _VERSION:
                raise CorruptionError(
                    f"the manifest has version {data['version']}; this Headrace reads {_VERSION}: "
                    "update Headrace"
                )
            parts = tuple(Part(**each) for each in data["parts"])
            return cls(Ledger.from_json(data["ledger"]), parts, data["number"], data["garbage"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptionError(f"this is not the manifest that was written ({error}); {REMEDY}") from error


def first_to_merge(parts: Sequence[Part]) -> int | None:
    """The place of the first part to merge, by `merge_from`; parts that were added together count as one."""
    starts = [
        place
        for place, part in enumerate(parts)
        if place == 0 or not part.number or part.number != parts[place - 1].number
    ]
    bounds = [*starts, len(parts)]
    sizes = [sum(part.count for part in parts[start:end]) for start, end in pairwise(bounds)]
    found = merge_from(sizes)
    return None if found is None else starts[found]


def merge_from(counts: Sequence[int]) -> int | None:
    """The first part to merge, given their sizes, oldest first; None to leave them.

    Small parts at the end are merged once there are four, with every older one that is
    at most four times as large as all those after it. Each row is therefore rewritten
    a logarithmic number of times, and the number of parts is logarithmic.
    """
    start, total = len(counts), 0
    while start > 0 and (total == 0 or counts[start - 1] <= _RATIO * total):
        start -= 1
        total += max(counts[start], 1)
    return start if len(counts) - start >= _LEAST_PARTS else None
