"""Which transactions were read, by their global ids. Pure.

MySQL numbers them by the server that they began on, and a set of them is written
`3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:11,…`. MariaDB numbers them by domain, and a position is
the last one of each domain, written `0-1-270,1-5-12`.
"""

import struct
import uuid
from bisect import bisect_right
from collections.abc import Iterator

from headrace.errors import RequestError

__all__ = ["DomainPositions", "GtidSet"]


class GtidSet:
    """Transactions of MySQL: for each server, ranges of numbers, both ends included."""

    def __init__(self, ranges: dict[str, list[tuple[int, int]]] | None = None) -> None:
        self._ranges = ranges or {}

    @classmethod
    def parse(cls, text: str) -> "GtidSet":
        """RequestError for what is no such set, or has tags, which cannot be followed."""
        made = cls()
        for part in "".join(text.split()).split(","):
            if not part:
                continue
            server, *ranges = part.split(":")
            for each in ranges:
                first, _, last = each.partition("-")
                if not first.isdecimal():
                    raise RequestError(
                        f"transactions with the tag {each!r} in their GTIDs cannot be captured"
                    )
                made._add_range(server.lower(), int(first), int(last or first))
        return made

    def add(self, server: str, number: int) -> None:
        self._add_range(server, number, number)

    def _add_range(self, server: str, first: int, last: int) -> None:
        ranges = self._ranges.setdefault(server, [])
        if ranges and ranges[-1][1] + 1 == first:  # as it nearly always is
            ranges[-1] = (ranges[-1][0], last)
            return
        merged: list[tuple[int, int]] = []
        for begin, end in sorted([*ranges, (first, last)]):
            if merged and begin <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        self._ranges[server] = merged

    def has(self, server: str, number: int) -> bool:
        ranges = self._ranges.get(server, [])
        at = bisect_right(ranges, (number, 1 << 63)) - 1
        return at >= 0 and ranges[at][0] <= number <= ranges[at][1]

    def contains(self, other: "GtidSet") -> bool:
        """Whether it has every transaction of the other."""
        return not any(True for _ in self._missing(other))

    def _missing(self, other: "GtidSet") -> Iterator[str]:
        for server, ranges in other._ranges.items():
            own = self._ranges.get(server, [])
            for first, last in ranges:
                if not any(begin <= first and last <= end for begin, end in own):
                    yield server

    def __bool__(self) -> bool:
        return any(self._ranges.values())

    def __str__(self) -> str:
        return ",".join(
            server + "".join(f":{first}" if first == last else f":{first}-{last}" for first, last in ranges)
            for server, ranges in sorted(self._ranges.items())
        )

    def encode(self) -> bytes:
        """As COM_BINLOG_DUMP_GTID takes it: the end of a range is the number behind it."""
        made = [struct.pack("<Q", len(self._ranges))]
        for server, ranges in sorted(self._ranges.items()):
            made.append(uuid.UUID(server).bytes + struct.pack("<Q", len(ranges)))
            made += [struct.pack("<QQ", first, last + 1) for first, last in ranges]
        return b"".join(made)


class DomainPositions:
    """The last transaction of each domain of MariaDB."""

    def __init__(self, last: dict[int, tuple[int, int]] | None = None) -> None:
        self._last = last or {}

    @classmethod
    def parse(cls, text: str) -> "DomainPositions":
        last = {}
        for part in text.replace(" ", "").split(","):
            if part:
                domain, server, number = (int(each) for each in part.split("-"))
                last[domain] = (server, number)
        return cls(last)

    def add(self, domain: int, server: int, number: int) -> None:
        self._last[domain] = (server, number)

    def __str__(self) -> str:
        return ",".join(
            f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self._last.items())
        )
