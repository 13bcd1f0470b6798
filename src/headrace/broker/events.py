"""What people should know, as records in an internal topic: drops, groups about to fall off or fallen.

Any client can read `__headrace_events`; `docs/guides/overload.md` gives the format. At
most one record per kind, topic, partition and group in `INTERVAL_MS`; what
happens in between is added up and told by the next one, so that the numbers in
the records sum up to what happened.
"""

import asyncio
import json
import logging
from typing import Any, NamedTuple

from headrace.broker.log import Topics
from headrace.clock import Clock
from headrace.errors import HeadraceError
from headrace.records import Record, encode_batch

__all__ = ["EVENTS_TOPIC", "INTERVAL_MS", "Events", "Subject"]

EVENTS_TOPIC = "__headrace_events"
INTERVAL_MS = 10_000
MOST_SUBJECTS = 10_000
_OVERRIDES = {"retention.bytes": str(16 * 1024 * 1024), "segment.bytes": str(4 * 1024 * 1024)}

logger = logging.getLogger(__name__)


class Subject(NamedTuple):
    """What an event is about; the group is None where it is about a partition."""

    kind: str
    topic: str
    partition: int
    group: str | None = None


class Events:
    """Collects events and writes them. Event loop only.

    `note` never waits. An event that cannot be written stays and is tried again;
    with more than `MOST_SUBJECTS` waiting, further ones go to the broker's log only.
    """

    def __init__(self, topics: Topics, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock
        self._waiting: dict[Subject, dict[str, Any]] = {}
        self._written_ms: dict[Subject, int] = {}
        self._changed = asyncio.Event()

    def note(self, subject: Subject, *, records: int = 0, **details: Any) -> None:
        """Something happened; `records` is how many it concerns, and is added up until it is written."""
        if subject not in self._waiting and len(self._waiting) >= MOST_SUBJECTS:
            logger.warning("too many events are waiting; not recorded: %s, %d records", subject, records)
            return
        before = self._waiting.get(subject, {}).get("records", 0)
        self._waiting[subject] = {"records": before + records, **details}
        self._changed.set()

    def withdraw(self, subject: Subject) -> None:
        """Takes back an event that is not written yet."""
        self._waiting.pop(subject, None)

    async def run(self) -> None:
        """Writes events when their time has come, until cancelled."""
        while True:
            if not self._waiting:
                self._changed.clear()
                await self._changed.wait()
            pause_ms = 200
            try:
                await self._write(self._due())
            except HeadraceError as error:
                logger.error("events could not be written, they will be tried again: %s", error)
                pause_ms = INTERVAL_MS
            await asyncio.sleep(pause_ms / 1000)

    async def close(self) -> None:
        """Writes everything that waits, whatever the interval."""
        try:
            await self._write(list(self._waiting))
        except HeadraceError as error:
            logger.error("events were not written: %s: %s", error, self._waiting)

    def _due(self) -> list[Subject]:
        now_ms = self._clock.monotonic_ms()
        recent = {at: ms for at, ms in self._written_ms.items() if now_ms - ms < INTERVAL_MS}
        self._written_ms = recent
        return [subject for subject in self._waiting if subject not in recent]

    async def _write(self, subjects: list[Subject]) -> None:
        if not subjects:
            return
        if self._topics.named(EVENTS_TOPIC) is None:
            await self._topics.create(EVENTS_TOPIC, 1, _OVERRIDES)
        partition = self._topics.partition(EVENTS_TOPIC, 0)
        assert partition is not None, "the topic has one partition"
        now_ms = self._clock.now_ms()
        batch = [(subject, self._waiting.pop(subject)) for subject in subjects]
        records = [Record(0, now_ms, *_encoded(*each, now_ms)) for each in batch]
        try:
            partition.append(encode_batch(records), now_ms=now_ms)
            await partition.synced()
        except HeadraceError:
            for subject, details in batch:
                self.note(subject, **details)
            raise
        self._written_ms.update(dict.fromkeys(subjects, self._clock.monotonic_ms()))


def _encoded(subject: Subject, details: dict[str, Any], now_ms: int) -> tuple[bytes, bytes]:
    """A record's key, which is the same for the same subject, and its value."""
    key = json.dumps(list(subject)).encode()
    return key, json.dumps({"at_ms": now_ms, **subject._asdict(), **details}).encode()
