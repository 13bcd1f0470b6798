"""The loop of a follower: reads its topic, and writes rows and position to its target in one transaction.

No state is kept but that in the target. After a failure of either side both are opened again, and
the target says where to continue; so each record takes effect once, wherever the process was killed.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headrace.client import LARGE_RECORD_CONFIGS, LARGEST_RECORD_BYTES, Connection, OffsetsGone, producer
from headrace.client.deadletters import shortened
from headrace.client.topics import SILENT_LOGGER, TopicSettings, ensure_topics
from headrace.clock import Clock, SystemClock
from headrace.crash_points import reached
from headrace.derived.changes import Row, RowChange, UnreadableChange, merged, read_change
from headrace.derived.compare import RANGES
from headrace.derived.expected import ExpectedRows
from headrace.derived.searched_fields import SearchedFields
from headrace.derived.spec import Follow
from headrace.derived.state import FollowState, TopicFacts, decide_start
from headrace.derived.status import FollowStatus, State
from headrace.derived.target import StateLost, Target
from headrace.derived.topic import TopicReader, TopicRecord
from headrace.derived.verify import differing_ranges, differing_rows
from headrace.errors import FencedError, HeadraceError, RequestError, RetriableError
from headrace.records import STREAM_PREFIX, encode_headers
from headrace.wire import ErrorCode

__all__ = ["FollowRun"]

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 30.0
_IDLE_S = 0.1
_WAIT_S = 1.0
_STATUS_S = 1.0
_MOST_RECORDS = 5_000  # of a transaction that corrects rows
_MOST_OF_CUT, _MOST_CUT_BYTES = 200_000, 256 << 20  # of a transaction that becomes visible at once
_MOST_COMPARED = 50_000
_ALIVE_MS = 15 * 60 * 1000
_REASON_LETTERS = 500


class FollowRun:
    """Runs one follower until `stop`; `run` belongs to one thread, the other methods to any.

    `on_status` gets the status whenever its state changes, and about once a second; `on_message`
    what a person should know. `run` returns when it was stopped, and raises FencedError when
    another process has taken over. An error that retrying cannot cure leaves the follower in
    the state "stopped", with the reason, until `rebuild`.
    """

    def __init__(
        self,
        follow: Follow,
        target: Target,
        connection: Connection,
        *,
        on_status: Callable[[FollowStatus], None] = lambda _: None,
        on_message: Callable[[str], None] = lambda _: None,
        request: str = "",
        clock: Clock | None = None,
    ) -> None:
        self.follow = follow
        self._target = target
        self._connection = connection
        self._searched = SearchedFields(follow, connection)
        self._on_status = on_status
        self._on_message = on_message
        self._clock = clock or SystemClock()
        self._owner = secrets.token_hex(8)
        self._stopping = threading.Event()
        self._switched = threading.Event()
        self._request = request
        self._producer: Any = None
        self._said_at = 0.0
        self._due_s = 0.0
        self._failures = 0
        self._state: FollowState | None = None
        self.status = FollowStatus(
            name=follow.name,
            state="starting",
            at_ms=self._clock.now_ms(),
            topic=follow.topic,
            into=follow.into.url,
        )

    # --- from any thread ----------------------------------------------------------------------

    def stop(self) -> None:
        """Makes `run` return after the transaction under way."""
        self._stopping.set()
        self._switched.set()

    def rebuild(self, request: str = "") -> None:
        """Compares all rows with the log and corrects them; also continues after a stop.

        A `request` that any process has already carried out is not carried out again.
        """
        self._request = request or secrets.token_hex(8)
        self._switched.set()

    # --- the loop -----------------------------------------------------------------------------

    def run(self) -> None:
        """Follows until `stop`."""
        try:
            while not self._stopping.is_set():
                self._switched.clear()
                if not self._stopping.is_set():
                    self._attempt()
        finally:
            self._target.close()

    def _attempt(self) -> None:
        """Opens both sides and follows until something happens; decides what to do then."""
        try:
            with TopicReader(self._connection, self.follow.topic, self.follow.transactions) as reader:
                state = self._start(reader)
                while not self._switched.is_set():
                    state = self._round(reader, state)
        except FencedError:
            raise
        except OffsetsGone as error:
            self._tell(str(error))
            self._target.close()
            self._switched.wait(_FIRST_PAUSE_S)
        except StateLost as error:
            self._tell(f"{error}: it is built from the log again")
            self._target.close()
        except RetriableError as error:
            self._target.close()
            self._fail(str(error), "reconnecting")
            self._switched.wait(min(_FIRST_PAUSE_S * 2**self._failures, _LONGEST_PAUSE_S))
            self._failures += 1
        except HeadraceError as error:
            self._target.close()
            if isinstance(error, RequestError) and error.code == ErrorCode.unknown_topic_or_partition:
                self._fail(f"{error}: it is waited for", "reconnecting")
                self._switched.wait(_WAIT_S)
                return
            self._fail(str(error), "stopped")
            self._switched.wait()

    def _start(self, reader: TopicReader) -> FollowState:
        """Claims the target, and corrects it if the log does not continue from where it is."""
        facts = reader.facts()
        stored, now_ms = self._target.state(), self._clock.now_ms()
        start = decide_start(
            stored,
            facts,
            topic=self.follow.topic,
            owner=self._owner,
            is_empty=stored is None and self._target.is_empty(),
            now_ms=now_ms,
        )
        is_asked = stored is not None and bool(self._request) and self._request != stored.rebuilt
        state = start.state
        if is_asked:
            state = replace(state, topic_id=facts.topic_id, positions={}, building=dict(facts.goal))
        elif not start.repair and stored is None:
            state = replace(state, rebuilt=self._request)
        self._target.claim(state)
        if is_asked or start.repair:
            self._tell(f"its rows are compared with the log: {start.why or 'as was asked for'}")
            state = self._repair(reader, replace(state, rebuilt=self._request), facts)
        self._state = state
        self._say("building" if state.is_building else "following", force=True)
        return state

    def _round(self, reader: TopicReader, state: FollowState) -> FollowState:
        """One transaction of the target, or a short wait."""
        pace = self._target.pace
        if self._due_s > time.monotonic():
            return self._wait_for_turn(reader, state)
        most = pace.most_records if state.is_building else _MOST_OF_CUT
        goal = reader.goal(state.positions, most)
        limits = (pace.most_records, pace.most_bytes)
        if self._is_by_cuts(state):
            limits = (_MOST_OF_CUT, _MOST_CUT_BYTES)
        read = reader.read(state.positions, goal, most_records=limits[0], most_bytes=limits[1])
        self._failures = 0
        if not any(state.positions.get(each, 0) != at for each, at in read.positions.items()):
            return self._idle(state)
        self._searched.require()
        now_ms = self._clock.now_ms()
        following = state.moved(read.positions, now_ms)
        self._apply(read.records, following)
        self._due_s = time.monotonic() + (0.0 if following.is_building else pace.interval_s)
        self._state = following
        behind = sum(max(0, end - following.positions.get(each, 0)) for each, end in goal.items())
        age = (now_ms - read.records[-1].timestamp_ms) / 1000 if behind and read.records else None
        self.status = replace(self.status, behind=behind, seconds_behind=age)
        self._say("building" if following.is_building else "following")
        return following

    def _is_by_cuts(self, state: FollowState) -> bool:
        return bool(self.follow.transactions) and not state.is_building

    def _wait_for_turn(self, reader: TopicReader, state: FollowState) -> FollowState:
        """A short wait, for the target takes its next transaction later."""
        ends = reader.ends()
        behind = sum(max(0, end - state.positions.get(each, 0)) for each, end in ends.items())
        self.status = replace(self.status, behind=behind, seconds_behind=None)
        self._say("following")
        self._switched.wait(min(_WAIT_S, max(0.0, self._due_s - time.monotonic())))
        return state

    def _idle(self, state: FollowState) -> FollowState:
        """Nothing is new. The state is written now and then, to show that no delete was missed."""
        now_ms = self._clock.now_ms()
        if now_ms - state.at_ms > _ALIVE_MS or (state.building and not state.is_building):
            state = state.moved({}, now_ms)
            self._target.apply({}, (), state, self._ignore)
        self.status = replace(self.status, behind=0, seconds_behind=None)
        self._say("building" if state.is_building else "following")
        self._switched.wait(_IDLE_S)
        return state

    def _apply(self, records: list[TopicRecord], state: FollowState) -> None:
        """The newest row of each key among these records, in one transaction of the target."""
        changes: dict[bytes, Row | None] = {}
        origin: dict[bytes, TopicRecord] = {}
        for record in records:
            change = read_change(record.key, record.value, self.follow.format)
            if isinstance(change, UnreadableChange):
                self._set_aside(record, change.reason)
            elif change is not None:
                changes[change.key] = self._whole(change, changes)
                origin[change.key] = record
        upserts = {key: row for key, row in changes.items() if row is not None}
        deletes = [key for key, row in changes.items() if row is None]
        reached("begun")
        self._target.apply(upserts, deletes, state, lambda key, why: self._set_aside(origin[key], why))
        reached("committed")
        done = self.status
        self.status = replace(done, upserts=done.upserts + len(upserts), deletes=done.deletes + len(deletes))

    def _whole(self, change: RowChange, changes: dict[bytes, Row | None]) -> Row | None:
        """The row with values that the change left as they were, of this batch or of the target."""
        if not change.unchanged or change.row is None:
            return change.row
        if change.key in changes:
            return merged(change, changes[change.key])
        return merged(change, self._target.get([change.key]).get(change.key))

    # --- correcting the target ----------------------------------------------------------------

    def _repair(self, reader: TopicReader, state: FollowState, facts: TopicFacts) -> FollowState:
        """Corrects every row that differs from the log's; correct rows are not touched."""
        self._say("repairing", force=True)
        corrected = 0
        with ExpectedRows() as expected:
            expected.read(reader, facts.starts, facts.goal, self.follow.format)
            ranges, count = differing_ranges(expected, self._target)
            waiting = sorted(ranges)
            together = max(1, _MOST_COMPARED * RANGES // max(count, 1))
            while waiting:
                corrected += self._correct_ranges(expected, frozenset(waiting[:together]), state)
                del waiting[:together]
            done = replace(state, positions=dict(expected.positions), building={}, at_ms=self._clock.now_ms())
        self._target.apply({}, (), done, self._ignore)
        self.status = replace(self.status, repairs=self.status.repairs + 1)
        self._tell(f"its rows are those of the log; {corrected:,} were corrected")
        return done

    def _correct_ranges(self, expected: ExpectedRows, ranges: frozenset[int], state: FollowState) -> int:
        """Corrects the rows of some ranges of keys; how many there were."""
        found = list(differing_rows(expected, self._target, ranges))
        wanted = {each.identity for each in found}
        keys = {at: key for key, _ in expected if (at := self._target.identity(key)) in wanted}
        for start in range(0, len(found), _MOST_RECORDS):
            part = found[start : start + _MOST_RECORDS]
            rows = {keys[each.identity]: expected.get(keys[each.identity]) for each in part if each.expected}
            extra = [each.identity for each in part if not each.expected]
            self._correct({key: row for key, row in rows.items() if row is not None}, extra, state)
        return len(found)

    def _correct(self, upserts: dict[bytes, Row], extra: list[bytes], state: FollowState) -> None:
        def refuse(key: bytes, why: str) -> None:
            self._set_aside(TopicRecord(-1, -1, self._clock.now_ms(), key, None), why)

        if extra:
            self._target.delete_identities(extra, state)
        if upserts:
            self._target.apply(upserts, (), state, refuse)

    # --- messages -----------------------------------------------------------------------------

    def _set_aside(self, record: TopicRecord, reason: str) -> None:
        """Writes a dead letter, and waits until the log has it."""
        about: dict[str, object] = {
            "reason": reason[:_REASON_LETTERS],
            "group": self.follow.name,
            "topic": self.follow.topic,
        }
        if record.offset >= 0:
            about |= {
                "partition": record.partition,
                "offset": record.offset,
                "timestamp_ms": record.timestamp_ms,
            }
        if self._producer is None:
            settings = TopicSettings(partitions=1, configs=LARGE_RECORD_CONFIGS)
            ensure_topics(self._connection, {self.follow.dead: settings})
            self._producer = producer(self._connection, linger_ms=1, logger=SILENT_LOGGER)
        headers = encode_headers(STREAM_PREFIX, about)
        key, value, headers = shortened(
            record.key, record.value, (), headers, prefix=STREAM_PREFIX, most_bytes=LARGEST_RECORD_BYTES
        )
        self._producer.produce(self.follow.dead, value, key, headers=list(headers))
        if self._producer.flush(self._connection.retry_timeout_ms / 1000):
            raise RetriableError(f"the log does not take the dead letters of {self.follow.name}")
        self.status = replace(self.status, dead=self.status.dead + 1)

    @staticmethod
    def _ignore(key: bytes, why: str) -> None:
        del key, why

    def _tell(self, message: str) -> None:
        _log.info("%s: %s", self.follow.name, message)
        self._on_message(f"{self.follow.name}: {message}")

    def _fail(self, message: str, state: State) -> None:
        again = 1 if state == "reconnecting" else 0
        self.status = replace(
            self.status,
            error=message,
            error_at_ms=self._clock.now_ms(),
            reconnects=self.status.reconnects + again,
        )
        self._say(state, force=True)

    def _say(self, state: State, *, force: bool = False) -> None:
        now = time.monotonic()
        if not force and state == self.status.state and now - self._said_at < _STATUS_S:
            return
        at = {} if self._state is None else {str(each): to for each, to in self._state.positions.items()}
        self.status = replace(self.status, state=state, at_ms=self._clock.now_ms(), positions=at)
        self._said_at = now
        self._on_status(self.status)
