"""Which record a message is about, and the id by which a receiver knows it again. Pure.

A record of a derived topic carries the place of the record it was made from in the header
`headrace.source`, as `topic:partition:offset`, and `:row` behind it for the second and
further rows that one record became. A rebuild writes it again at another offset, but from
the same source; hence ids and marks go by the source. Any other record is its own source.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["SOURCE_HEADER", "Record", "Source", "is_message_id", "message_id", "source_header", "source_of"]

SOURCE_HEADER = "headrace.source"

_SOURCE = re.compile(r"([A-Za-z0-9._-]{1,249}):(\d{1,9}):(\d{1,19})(?::(\d{1,9}))?", re.ASCII)
_MESSAGE_ID = re.compile(r"msg_[0-9a-f]{32}")

Headers = tuple[tuple[str, bytes | None], ...]


class Source(NamedTuple):
    """The place of a record in a log; `row` tells several rows of one record apart."""

    topic: str
    partition: int
    offset: int
    row: int = 0

    def __str__(self) -> str:
        place = f"{self.topic}:{self.partition}:{self.offset}"
        return f"{place}:{self.row}" if self.row else place


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as it stands on the topic that a hook follows."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    def header(self, name: str) -> bytes | None:
        """The last header of this name."""
        return last_header(self.headers, name)


def last_header(headers: Iterable[tuple[str, bytes | None]], name: str) -> bytes | None:
    """The value of the last header of a name; None if there is none."""
    found = None
    for each, value in headers:
        if each == name:
            found = value
    return found


def source_header(source: Source) -> tuple[str, bytes]:
    """What a derived record says about where it came from."""
    return SOURCE_HEADER, str(source).encode()


def source_of(record: Record) -> Source | None:
    """Where a derived record came from; None if it does not say so in a form that we know."""
    value = record.header(SOURCE_HEADER)
    found = _SOURCE.fullmatch(value.decode("ascii", "replace")) if value is not None else None
    if found is None:
        return None
    topic, *numbers = found.groups()
    return Source(topic, *(int(each) for each in numbers if each is not None))


def message_id(followed: str, topic_id: str, source: Source) -> str:
    """The same for the same source for ever, and different for any other.

    `followed` is the topic that hooks follow, since one record may go into several. A
    topic that is made anew under its old name has another `topic_id`, and so other ids.
    """
    about = "\n".join((followed, topic_id or source.topic, *map(str, source[1:])))
    return "msg_" + hashlib.sha256(about.encode()).hexdigest()[:32]


def is_message_id(text: str) -> bool:
    """Whether this is an id as we make them."""
    return _MESSAGE_ID.fullmatch(text) is not None
