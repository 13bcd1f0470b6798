"""Dead letters, newest first, from any number of topics. Blocks: for the console's threads."""

import base64
import binascii
import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from headrace.client import RawFetcher
from headrace.client.deadletters import DeadLetter, RedriveProgress, read_dead_letter
from headrace.client.topics import PartitionKey
from headrace.console.ask.records import PageLimits, PartitionRecord, bounds, read_page, records_to_json
from headrace.console.problems import ProblemError
from headrace.records import DEAD_LETTER_PREFIXES

__all__ = [
    "DeadLetterPage",
    "DeadLetterPredicate",
    "dead_letter_to_json",
    "format_cursor",
    "newest_dead_letters",
    "parse_cursor",
]

DeadLetterPredicate = Callable[[DeadLetter], bool]
_BYTES = 16 << 20
_LOOKED_AT = 500


class DeadLetterPage:
    """Letters with the topic they are in, and up to where older ones stand, by partition."""

    def __init__(self) -> None:
        self.letters: list[tuple[str, PartitionRecord, DeadLetter]] = []
        self.before: dict[PartitionKey, int] = {}


def newest_dead_letters(
    fetcher: RawFetcher,
    topics: Iterable[str],
    before: Mapping[PartitionKey, int] | None,
    count: int,
    keep: DeadLetterPredicate,
) -> DeadLetterPage:
    """The newest `count` that are kept and stand before the given places; at the end without.

    Looks at no more than some hundred letters of each partition, so a page may have
    fewer, or none, while older ones remain: `before` says so.
    """
    page, first = DeadLetterPage(), {}
    own: list[list[tuple[str, PartitionRecord, DeadLetter]]] = []
    for topic in topics:
        for partition, (start, end) in bounds(fetcher, topic).items():
            place = topic, partition
            end = end if before is None else min(end, before.get(place, start))
            begin, records = _last(fetcher, place, start, end, max(count, _LOOKED_AT))
            first[place] = start
            page.before[place] = begin
            own.append(
                [(topic, each, letter) for each, letter in _letters(reversed(records)) if keep(letter)]
            )
    found = list(heapq.merge(*own, key=lambda each: -each[1].record.timestamp_ms))
    page.letters = found[:count]
    for topic, left, _ in found[count:]:  # those that found no room come again
        place = topic, left.partition
        page.before[place] = max(page.before[place], left.record.offset + 1)
    page.before = {place: offset for place, offset in page.before.items() if offset > first[place]}
    return page


def _last(
    fetcher: RawFetcher, place: PartitionKey, start: int, end: int, count: int
) -> tuple[int, list[PartitionRecord]]:
    """The last records before `end`, and the offset they begin with; fewer where they are large."""
    topic, partition = place
    while True:
        begin = max(start, end - count)
        if begin >= end:
            return end, []
        limits = PageLimits(records=count, bytes=_BYTES, scan_bytes=_BYTES)
        page = read_page(fetcher, topic, {partition: begin}, {partition: end}, limits)
        if page.positions[partition] >= end or count == 1:
            return begin, page.records
        count //= 2


def _letters(records: Iterable[PartitionRecord]) -> Iterable[tuple[PartitionRecord, DeadLetter]]:
    for found in records:
        letter = read_dead_letter(found.record.headers)
        if letter is not None:
            yield found, letter


def dead_letter_to_json(
    topic: str, found: PartitionRecord, letter: DeadLetter, sent: Mapping[int, RedriveProgress]
) -> dict[str, Any]:
    """The record as the API shows records, without the headers that tell of its death, and those in words."""
    own = tuple(header for header in found.record.headers if not header[0].startswith(DEAD_LETTER_PREFIXES))
    (shown,) = records_to_json([PartitionRecord(found.partition, found.record._replace(headers=own))])
    again = sent.get(found.partition)
    return {
        "topic": topic,
        **shown,
        **letter.to_json(),
        "redriven": again is not None and again.has(found.record.offset),
    }


# --- cursors -------------------------------------------------------------------------------------


def format_cursor(before: Mapping[PartitionKey, int]) -> str | None:
    """Opaque text for `parse_cursor`; None if nothing is left."""
    if not before:
        return None
    places = [[topic, partition, offset] for (topic, partition), offset in sorted(before.items())]
    return base64.urlsafe_b64encode(orjson.dumps(places)).decode().rstrip("=")


def parse_cursor(text: str) -> dict[PartitionKey, int]:
    """The places; raises ProblemError if it is no cursor of ours."""
    try:
        places = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        found = {(topic, partition): offset for topic, partition, offset in places}
    except (ValueError, TypeError, binascii.Error):
        raise _no_cursor() from None
    for (topic, partition), offset in found.items():
        if not isinstance(topic, str) or type(partition) is not int or type(offset) is not int or offset < 0:
            raise _no_cursor()
    return found


def _no_cursor() -> ProblemError:
    return ProblemError(
        400, "this is not a cursor", "pass the `next` of a page unchanged", kind="bad-parameter"
    )
