"""Records of a followed topic, and the ids by which receivers recognise messages. Pure.

A record of a derived topic names the record it was made from in the header `headrace.source`.
A rebuild writes it again at another offset, but from the same source; hence ids and marks go
by the source. Any other record is its own source.
"""

import hashlib
import re
from dataclasses import dataclass

from headrace.records import SOURCE_HEADER, Headers, SourceRecord, last_header, parse_source_header

__all__ = ["HookRecord", "is_message_id", "message_id", "source_of"]

_MESSAGE_ID = re.compile(r"msg_[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRecord:
    """A record of the topic that a hook follows."""

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


def source_of(record: HookRecord) -> SourceRecord | None:
    """Where a derived record came from; None if it does not say."""
    return parse_source_header(record.header(SOURCE_HEADER))


def message_id(followed: str, topic_id: str, source: SourceRecord) -> str:
    """The id of a message: always the same for one source, and different for any other.

    `followed` is the topic that hooks follow, since one record may go into several. A topic
    that is recreated under its old name has another `topic_id`, and so other ids.
    """
    about = "\n".join((followed, topic_id or source.topic, *map(str, source[1:])))
    return "msg_" + hashlib.sha256(about.encode()).hexdigest()[:32]


def is_message_id(text: str) -> bool:
    """Whether this has the form of a message id."""
    return _MESSAGE_ID.fullmatch(text) is not None
