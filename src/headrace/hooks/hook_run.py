"""One run of a hook: reads its topic and delivers, each partition in order, all of them concurrently.

A partition has a queue and a worker. The worker finishes a record (delivered, muted or given
up) before it takes the next; waiting between attempts blocks only its own partition. The
reader pauses partitions whose queue is full.
"""

import asyncio
import contextlib
from collections.abc import Callable
from random import Random

from headrace.clock import Clock
from headrace.errors import RetriableError
from headrace.hooks.hook import Hook
from headrace.hooks.log import (
    FollowedTopic,
    HookReader,
    HookRecord,
    HookState,
    Item,
    LastAttempt,
    PartitionEnd,
    PositionLost,
    StateWriter,
    TopicLookup,
    addressee,
    dead_letter,
    earlier_id,
    gap_notice,
    message_id,
    source_of,
)
from headrace.hooks.send import Delivery, DeliveryOutcome, DeliveryResult, HookSender
from headrace.records import REPLAY_HEADER, SourceRecord
from headrace.views.topic import LEDGER_KEY

__all__ = ["HookRun", "note_identities"]

_QUEUE = 200  # records of a partition that wait in memory
_UNSAVED = 100  # deliveries that a crash may repeat
_MARKS = 2_000  # single sources kept before partitions that are ahead are slowed down
_SLOWED_S = 1.0
_POLL_S = 0.25
_CHECK_S = 0.5
_REFRESH_S = 5.0
_REASON_LETTERS = 500


class _EndedError(Exception):
    """Ends the run from within."""


class HookRun:
    """One hook, until it is stopped, turned off by its receiver, or its topic changes partitions."""

    def __init__(
        self,
        hook: Hook,
        state: HookState,
        sender: HookSender,
        *,
        topic_lookup: TopicLookup,
        topics: dict[str, FollowedTopic],
        open_reader: Callable[[dict[int, int]], HookReader],
        state_writer: StateWriter,
        clock: Clock,
        random: Random,
        turn_off: Callable[[str], None],
    ) -> None:
        self.state = state
        self._hook = hook
        self._sender = sender
        self._topic_lookup = topic_lookup
        self._topics = topics
        self._open_reader = open_reader
        self._state_writer = state_writer
        self._clock = clock
        self._random = random
        self._turn_off = turn_off
        self._stop = asyncio.Event()
        self._refreshing = asyncio.Lock()
        self._refreshed_ms = 0
        self._reads = 0
        self._refreshed_after = 0  # this many reads
        self._unsaved = 0
        self._room = asyncio.Event()
        self._room.set()
        self._moved = asyncio.Event()
        self._reader: HookReader | None = None

    async def run(self) -> None:
        """Returns when the hook was stopped, or has to be set up again; raises groups of other errors."""
        partitions = self._topics[self._hook.topic].ends
        positions = {each: self.state.positions.get(each, 0) for each in partitions}
        queues: dict[int, asyncio.Queue[Item | None]] = {each: asyncio.Queue() for each in partitions}
        reader = await asyncio.to_thread(self._open_reader, positions)
        self._reader = reader
        try:
            async with asyncio.TaskGroup() as tasks:
                refreshing = tasks.create_task(self._refresh_regularly())
                for queue in queues.values():
                    tasks.create_task(self._work(queue))
                await self._read(reader, queues)
                refreshing.cancel()
                for queue in queues.values():
                    queue.put_nowait(None)
        except* _EndedError:
            pass
        finally:
            reader.show(self.state.positions)
            await asyncio.to_thread(reader.close)

    def stop(self) -> None:
        """Lets current attempts finish, and begins no others."""
        self._stop.set()

    def saved(self, handled: int) -> None:
        """So many handled records are saved on the log."""
        if self._reader is not None:
            self._reader.show(self.state.positions)
        self._unsaved -= handled
        if self._unsaved < _UNSAVED:
            self._room.set()

    # --- reading ------------------------------------------------------------------------------

    async def _read(self, reader: HookReader, queues: "dict[int, asyncio.Queue[Item | None]]") -> None:
        paused: set[int] = set()
        while not self._stop.is_set():
            full = {each for each, queue in queues.items() if queue.qsize() >= _QUEUE}
            emptied = {each for each in paused if queues[each].qsize() < _QUEUE // 2}
            reader.pause(full - paused)
            reader.resume(emptied)
            paused = (paused | full) - emptied
            found = await _in_thread(lambda: reader.read(_POLL_S))
            self._reads += 1
            for item in found:
                queues[item.partition].put_nowait(item)

    async def _work(self, queue: "asyncio.Queue[Item | None]") -> None:
        while (item := await queue.get()) is not None and not self._stop.is_set():
            if isinstance(item, HookRecord):
                await self._handle(item)
            elif isinstance(item, PartitionEnd):
                self._reach(item.partition, item.offset)
            else:
                await self._skip_gap(item)

    def _reach(self, partition: int, offset: int) -> None:
        if offset > self.state.positions.get(partition, 0):
            self.state.positions[partition] = offset
            self._state_writer.changed(self)

    async def _skip_gap(self, lost: PositionLost) -> None:
        """Continues where the log begins now, and reports what is missing."""
        topic, partition = self._hook.topic, lost.partition
        starts = await asyncio.to_thread(self._topic_lookup.starts, topic, [partition])
        position, start = self.state.positions.get(partition, 0), starts[partition]
        if start > position:
            self.state.counts["missed"] += start - position
            note = gap_notice(self.state.app, self._hook.name, topic, partition, position, start)
            self._state_writer.changed(self, dead_letter=note)
        self.state.positions[partition] = start
        raise _EndedError

    # --- one record ---------------------------------------------------------------------------

    async def _handle(self, record: HookRecord) -> None:
        """Finishes a record, and records that."""
        source = await self._verified_source(record)
        marked = source if addressee(record) is None else None  # a redriven record is to be sent again
        if record.key == LEDGER_KEY:  # a ledger record of a view is not delivered
            pass
        elif await self._is_muted(record, marked):
            self.state.counts["muted"] += 1
        else:
            await self._slow_down()
            if not await self._deliver(self._message(record, source)):
                return
        if marked is not None:
            self.state.marks.add(record.partition, marked)
        self.state.positions[record.partition] = record.offset + 1
        self._unsaved += 1
        self._state_writer.changed(self, handled=1)
        if self._unsaved >= _UNSAVED:
            self._room.clear()
        await self._room.wait()

    async def _is_muted(self, record: HookRecord, source: SourceRecord | None) -> bool:
        name = addressee(record)
        if name is not None:
            return name != self._hook.name
        if record.header(REPLAY_HEADER) is not None:
            return True
        if source is None or not self.state.marks.is_done(source):
            return False
        if self._refreshed_after < self._reads:
            await self._refresh()  # was its source recreated before it was written?
        return self.state.marks.is_done(source)

    def _message(self, record: HookRecord, source: SourceRecord | None) -> Delivery:
        of = source or SourceRecord(record.topic, record.partition, record.offset)
        made = message_id(self._hook.topic, self.state.topic_ids.get(of.topic, ""), of)
        return Delivery(id=earlier_id(record) or made, record=record, source=of)

    async def _deliver(self, message: Delivery) -> bool:
        """Tries until the record is finished; False if the hook was stopped before."""
        failures = 0
        while True:
            outcome = await self._sender.send(message)
            self._note(outcome)
            if outcome.result is DeliveryResult.DELIVERED:
                self.state.counts["delivered"] += 1
                return True
            if outcome.result is DeliveryResult.GONE:
                self._turn_off(outcome.reason[:_REASON_LETTERS])
                self._state_writer.changed(self)
                raise _EndedError
            if outcome.result is DeliveryResult.REFUSED:
                self.state.counts["refused"] += 1
                self._give_up(message, outcome.reason)
                return True
            failures += 1
            wait_s = self._hook.backoff.wait_s(failures, self._random, outcome.retry_after_s)
            if wait_s is None:
                self._give_up(message, f"tried {failures} times; last: {outcome.reason}")
                return True
            self.state.counts["retried"] += 1
            self._state_writer.changed(self)
            if await self._stopped_within(wait_s):
                return False

    def _note(self, outcome: DeliveryOutcome) -> None:
        reason = outcome.reason[:_REASON_LETTERS]
        self.state.last = LastAttempt(at_ms=self._clock.now_ms(), outcome=outcome.result.value, reason=reason)

    def _give_up(self, message: Delivery, reason: str) -> None:
        self.state.counts["dead"] += 1
        dead = dead_letter(
            self.state.app, self._hook.name, message.record, message.id, reason[:_REASON_LETTERS]
        )
        self._state_writer.changed(self, dead_letter=dead)

    async def _stopped_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        return self._stop.is_set()

    async def _slow_down(self) -> None:
        """Delays a partition that is far ahead of another, or the marks would grow without bound."""
        if self.state.marks.above >= _MARKS:
            self._moved.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SLOWED_S):
                    await self._moved.wait()

    # --- topics and marks ---------------------------------------------------------------------

    async def _verified_source(self, record: HookRecord) -> SourceRecord | None:
        """The source that a record names, if it exists on the log: anyone can write a header."""
        source = source_of(record)
        if source is None or self._has(source):
            return source
        await self._refresh(source.topic)
        return source if self._has(source) else None

    def _has(self, source: SourceRecord) -> bool:
        topics = self._topics.get(source.topic)
        return topics is not None and source.offset < topics.ends.get(source.partition, 0)

    async def _refresh(self, *also: str) -> None:
        """Updates topic ids and ends, and advances the marks; ends the run if the partitions changed."""
        async with self._refreshing:
            candidate, reads = self.state.marks.candidate(), self._reads
            names = {self._hook.topic, *self.state.topic_ids, *also}
            topics = await asyncio.to_thread(self._topic_lookup.topics, names)
            self._refreshed_ms, self._refreshed_after = self._clock.monotonic_ms(), reads
            before, now = self._topics[self._hook.topic], topics.get(self._hook.topic)
            if now is None or now.id != before.id or now.ends.keys() != before.ends.keys():
                raise _EndedError
            self._topics.update(topics)
            note_identities(self.state, topics)
            self.state.marks.advance(candidate, now.ends, self.state.positions)
            self._moved.set()

    async def _refresh_regularly(self) -> None:
        """Refreshes regularly: often while there are marks to advance, rarely otherwise."""
        while True:
            await asyncio.sleep(_CHECK_S)
            waited_ms = self._clock.monotonic_ms() - self._refreshed_ms
            if self.state.marks.above or waited_ms > 1000 * _REFRESH_S:
                with contextlib.suppress(
                    RetriableError
                ):  # the log is unreachable: the reader waits for it, too
                    await self._refresh()


def note_identities(state: HookState, topics: dict[str, FollowedTopic]) -> None:
    """Takes over topic ids; the marks of a source that was recreated are dropped."""
    for name, found in topics.items():
        known = state.topic_ids.get(name, found.id)
        if known != found.id:
            state.marks.forget(name)
        state.topic_ids[name] = found.id


async def _in_thread(act: Callable[[], list[Item]]) -> list[Item]:
    """Waits for the thread even when cancelled: what it uses must not be closed meanwhile."""
    reading = asyncio.ensure_future(asyncio.to_thread(act))
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            await reading
        raise
