"""One hook at work: reads its topic and delivers, each partition in order, all of them side by side.

A partition has a queue and a worker. The worker handles a record to its end (delivered,
muted or given up) before it takes the next; waiting between attempts holds up its own
partition alone. The reader pauses partitions whose queue is full.
"""

import asyncio
import contextlib
from collections.abc import Callable
from random import Random

from headrace.clock import Clock
from headrace.direct.asking import LogQuestions, TopicFacts
from headrace.direct.hook import Hook
from headrace.direct.letters import addressee, gap_letter, kept_id, letter
from headrace.direct.outcomes import Outcome, Verdict
from headrace.direct.positions import Record, Source, message_id, source_of
from headrace.direct.reading import End, Item, Lost, TopicReader
from headrace.direct.saving import Saver
from headrace.direct.sending import Message, Sender
from headrace.direct.state import HookState, Last
from headrace.errors import RetriableError
from headrace.views.topic_records import ENTRY_KEY, REPLAY_HEADER

__all__ = ["HookRun", "note_identities"]

_QUEUE = 200  # records of a partition that wait in memory
_UNSAVED = 100  # deliveries that a crash may repeat
_MARKS = 2_000  # sources kept one by one, before partitions that are ahead slow down
_SLOWED_S = 1.0
_POLL_S = 0.25
_UPKEEP_S = 0.5
_LOOK_AGAIN_S = 5.0
_REASON_LETTERS = 500


class _EndedError(Exception):
    """This run is over; `run` says what that means."""


class HookRun:
    """One hook from now until it is stopped, turned off by its receiver, or its topic changes shape."""

    def __init__(
        self,
        hook: Hook,
        state: HookState,
        sender: Sender,
        *,
        questions: LogQuestions,
        facts: dict[str, TopicFacts],
        open_reader: Callable[[dict[int, int]], TopicReader],
        saver: Saver,
        clock: Clock,
        random: Random,
        turn_off: Callable[[str], None],
    ) -> None:
        self.state = state
        self._hook = hook
        self._sender = sender
        self._questions = questions
        self._facts = facts
        self._open_reader = open_reader
        self._saver = saver
        self._clock = clock
        self._random = random
        self._turn_off = turn_off
        self._stop = asyncio.Event()
        self._asking = asyncio.Lock()
        self._asked_ms = 0
        self._reads = 0
        self._asked_behind = 0  # so many reads
        self._unsaved = 0
        self._room = asyncio.Event()
        self._room.set()
        self._moved = asyncio.Event()
        self._reader: TopicReader | None = None

    async def run(self) -> None:
        """Returns when the hook was stopped, or must be looked at anew; raises groups of other failures."""
        partitions = self._facts[self._hook.topic].ends
        positions = {each: self.state.positions.get(each, 0) for each in partitions}
        queues: dict[int, asyncio.Queue[Item | None]] = {each: asyncio.Queue() for each in partitions}
        reader = await asyncio.to_thread(self._open_reader, positions)
        self._reader = reader
        try:
            async with asyncio.TaskGroup() as tasks:
                upkeep = tasks.create_task(self._keep_up())
                for queue in queues.values():
                    tasks.create_task(self._work(queue))
                await self._read(reader, queues)
                upkeep.cancel()
                for queue in queues.values():
                    queue.put_nowait(None)
        except* _EndedError:
            pass
        finally:
            reader.show(self.state.positions)
            await asyncio.to_thread(reader.close)

    def stop(self) -> None:
        """Lets attempts under way end, and begins no others."""
        self._stop.set()

    def saved(self, handled: int) -> None:
        """What was handled is on the log."""
        if self._reader is not None:
            self._reader.show(self.state.positions)
        self._unsaved -= handled
        if self._unsaved < _UNSAVED:
            self._room.set()

    # --- reading ------------------------------------------------------------------------------

    async def _read(self, reader: TopicReader, queues: "dict[int, asyncio.Queue[Item | None]]") -> None:
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
            if isinstance(item, Record):
                await self._handle(item)
            elif isinstance(item, End):
                self._reach(item.partition, item.offset)
            else:
                await self._skip_gap(item)

    def _reach(self, partition: int, offset: int) -> None:
        if offset > self.state.positions.get(partition, 0):
            self.state.positions[partition] = offset
            self._saver.changed(self)

    async def _skip_gap(self, lost: Lost) -> None:
        """Goes on where the log begins now, and says what is missing."""
        topic, partition = self._hook.topic, lost.partition
        starts = await asyncio.to_thread(self._questions.starts, topic, [partition])
        position, start = self.state.positions.get(partition, 0), starts[partition]
        if start > position:
            self.state.counts["missed"] += start - position
            note = gap_letter(self.state.app, self._hook.name, topic, partition, position, start)
            self._saver.changed(self, letter=note)
        self.state.positions[partition] = start
        raise _EndedError

    # --- one record ---------------------------------------------------------------------------

    async def _handle(self, record: Record) -> None:
        """Brings a record to its end, and notes that."""
        source = await self._believed_source(record)
        marked = source if addressee(record) is None else None  # one that is sent again is due again
        if record.key == ENTRY_KEY:  # the ledger of a view, which is nobody's news
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
        self._saver.changed(self, handled=1)
        if self._unsaved >= _UNSAVED:
            self._room.clear()
        await self._room.wait()

    async def _is_muted(self, record: Record, source: Source | None) -> bool:
        name = addressee(record)
        if name is not None:
            return name != self._hook.name
        if record.header(REPLAY_HEADER) is not None:
            return True
        if source is None or not self.state.marks.is_done(source):
            return False
        if self._asked_behind < self._reads:
            await self._ask()  # was its source made anew before it was written?
        return self.state.marks.is_done(source)

    def _message(self, record: Record, source: Source | None) -> Message:
        of = source or Source(record.topic, record.partition, record.offset)
        made = message_id(self._hook.topic, self.state.topic_ids.get(of.topic, ""), of)
        return Message(id=kept_id(record) or made, record=record, source=of)

    async def _deliver(self, message: Message) -> bool:
        """Tries until there is a verdict; False if the hook was stopped before."""
        failures = 0
        while True:
            outcome = await self._sender.send(message)
            self._note(outcome)
            if outcome.verdict is Verdict.DELIVERED:
                self.state.counts["delivered"] += 1
                return True
            if outcome.verdict is Verdict.GONE:
                self._turn_off(outcome.reason[:_REASON_LETTERS])
                self._saver.changed(self)
                raise _EndedError
            if outcome.verdict is Verdict.REFUSED:
                self.state.counts["refused"] += 1
                self._give_up(message, outcome.reason)
                return True
            failures += 1
            wait_s = self._hook.backoff.wait_s(failures, self._random, outcome.retry_after_s)
            if wait_s is None:
                self._give_up(message, f"tried {failures} times; at last {outcome.reason}")
                return True
            self.state.counts["retried"] += 1
            self._saver.changed(self)
            if await self._stopped_within(wait_s):
                return False

    def _note(self, outcome: Outcome) -> None:
        reason = outcome.reason[:_REASON_LETTERS]
        self.state.last = Last(at_ms=self._clock.now_ms(), outcome=outcome.verdict.value, reason=reason)

    def _give_up(self, message: Message, reason: str) -> None:
        self.state.counts["dead"] += 1
        dead = letter(self.state.app, self._hook.name, message.record, message.id, reason[:_REASON_LETTERS])
        self._saver.changed(self, letter=dead)

    async def _stopped_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        return self._stop.is_set()

    async def _slow_down(self) -> None:
        """A partition that is far ahead of another waits a little, or the marks would grow without bound."""
        if self.state.marks.above >= _MARKS:
            self._moved.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SLOWED_S):
                    await self._moved.wait()

    # --- what the log says --------------------------------------------------------------------

    async def _believed_source(self, record: Record) -> Source | None:
        """Where a record says it came from, if that place is on the log: anybody can write a header."""
        source = source_of(record)
        if source is None or self._holds(source):
            return source
        await self._ask(source.topic)
        return source if self._holds(source) else None

    def _holds(self, source: Source) -> bool:
        facts = self._facts.get(source.topic)
        return facts is not None and source.offset < facts.ends.get(source.partition, 0)

    async def _ask(self, *also: str) -> None:
        """Asks for identities and ends, and moves the marks; raises when the topic changed its shape."""
        async with self._asking:
            candidate, reads = self.state.marks.candidate(), self._reads
            names = {self._hook.topic, *self.state.topic_ids, *also}
            facts = await asyncio.to_thread(self._questions.topics, names)
            self._asked_ms, self._asked_behind = self._clock.monotonic_ms(), reads
            before, now = self._facts[self._hook.topic], facts.get(self._hook.topic)
            if now is None or now.id != before.id or now.ends.keys() != before.ends.keys():
                raise _EndedError
            self._facts.update(facts)
            note_identities(self.state, facts)
            self.state.marks.advance(candidate, now.ends, self.state.positions)
            self._moved.set()

    async def _keep_up(self) -> None:
        """Asks now and then: often while there are marks to be moved, seldom otherwise."""
        while True:
            await asyncio.sleep(_UPKEEP_S)
            waited_ms = self._clock.monotonic_ms() - self._asked_ms
            if self.state.marks.above or waited_ms > 1000 * _LOOK_AGAIN_S:
                with contextlib.suppress(RetriableError):  # the log is away: the reader waits for it, too
                    await self._ask()


def note_identities(state: HookState, facts: dict[str, TopicFacts]) -> None:
    """Takes identities over; the marks of a source that was made anew are of no use any more."""
    for name, found in facts.items():
        known = state.topic_ids.get(name, found.id)
        if known != found.id:
            state.marks.forget(name)
        state.topic_ids[name] = found.id


async def _in_thread(act: Callable[[], list[Item]]) -> list[Item]:
    """Waits for the thread even when cancelled: what it uses must not be closed under its hands."""
    reading = asyncio.ensure_future(asyncio.to_thread(act))
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            await reading
        raise
