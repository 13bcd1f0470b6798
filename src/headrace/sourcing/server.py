"""Serves the entities of an application: a member of a group that shares their partitions.

The group's members are light processes (`headrace serve`), or the one inside `headrace run`.
What a member owns is the group's decision; that only the owner writes is enforced by the log
(`owner.py`).
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headrace.client import Connection, consumer, require_log
from headrace.client.topics import SILENT_LOGGER
from headrace.clock import Clock, SystemClock
from headrace.errors import HeadraceError, RequestError, RetriableError
from headrace.records import Record
from headrace.sourcing.entity_type import EntityType
from headrace.sourcing.owner import PartitionOwner
from headrace.sourcing.projections import Projection, ProjectionStart, ProjectionWorker
from headrace.sourcing.reactions import Reaction, ReactionWorker, start_reactions
from headrace.sourcing.records import Topics
from headrace.sourcing.sealing import FindKeys, no_keys
from headrace.sourcing.timers import TimerWorker, create_timers_topic, timers_topic
from headrace.sourcing.topics import create_entity_topics

__all__ = ["EntityServer", "entity_group"]

_POLL_S = 0.2
_COMMIT_S = 1.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
_MOST_RECORDS = 2_000
_TRANSIENT = (KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


def entity_group(app: str) -> str:
    """The group whose members share the partitions of commands."""
    return f"{app}.entities"


class EntityServer:
    """Owns some of the partitions of an application's commands, and carries them out.

    `run` returns when `stop` is called, from any thread; partitions then go to the other
    members, with their snapshots written.
    """

    def __init__(
        self,
        connection: Connection,
        app: str,
        kinds: Mapping[str, EntityType],
        reactions: Iterable[Reaction] = (),
        *,
        session_timeout_ms: int = 6_000,
        clock: Clock | None = None,
        on_message: Callable[[str], None] = lambda _: None,
        find_keys: FindKeys = no_keys,
        projections: Iterable[tuple[Projection, ProjectionStart]] = (),
    ) -> None:
        self._connection = connection
        self._app = app
        self._projections = tuple(projections)
        self._kinds = {Topics.of(app, each.name).commands: each for each in kinds.values()}
        self._reactions = tuple(reactions)
        self._session_timeout_ms = session_timeout_ms
        self._clock = clock or SystemClock()
        self._say = on_message
        self._find_keys = find_keys
        self._owners: dict[tuple[str, int], PartitionOwner] = {}
        self._stopping = threading.Event()
        self._committed: dict[tuple[str, int], int] = {}
        self._left: dict[tuple[str, int], int] = {}  # the positions of those that were stopped
        self._failure: BaseException | None = None
        self._joined = False

    def stop(self) -> None:
        """Makes `run` return."""
        self._stopping.set()

    @property
    def owned(self) -> list[tuple[str, int]]:
        """Topics of commands and partitions that this member owns now."""
        return sorted(self._owners)

    def wait_log(self) -> bool:
        """Returns once the log answers; False if it was stopped before that. Says what it waits for."""
        said, pause_s = "", _FIRST_PAUSE_S
        while not self._stopping.is_set():
            try:
                require_log(replace(self._connection, retry_timeout_ms=0))
                return True
            except RetriableError as error:
                if str(error) != said:
                    said = str(error)
                    self._say(f"waiting for the log: {error}")
                self._stopping.wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return False

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serves until it is stopped; the log must answer when it begins (`wait_log`).

        `on_ready` is called once the group has given it partitions, or none because others have them all.
        """
        create_entity_topics(self._connection, self._app, self._kinds.values())
        workers = self._start_workers()
        member = self._join()
        ready, commit_at = False, 0.0
        try:
            while not self._stopping.is_set():
                self._dispatch(self._poll(member))
                self._raise_failure()
                if not ready and self._joined:
                    ready = True
                    on_ready()
                if time.monotonic() >= commit_at:
                    commit_at = time.monotonic() + _COMMIT_S
                    self._show_progress(member)
        finally:
            self._stop_owners(list(self._owners))
            self._show_progress(member)
            member.close()
            self._stopping.set()
            for each in workers:
                each.join()

    def _start_workers(self) -> list[threading.Thread]:
        """The threads of projections, reactions and timers."""
        targets = [*self._reacting(), *self._projecting()]
        threads = [
            threading.Thread(target=self._guarded, args=(run,), name=f"headrace-{name}", daemon=True)
            for name, run in targets
        ]
        for thread in threads:
            thread.start()
        return threads

    def _reacting(self) -> Iterator[tuple[str, Callable[[], None]]]:
        if not self._reactions:
            return
        create_timers_topic(self._connection, self._app)
        start_reactions(self._connection, self._app, self._reactions)
        timers = TimerWorker(self._connection, self._app, self._stopping, self._clock, self._say)
        yield timers_topic(self._app), timers.run
        for each in self._reactions:
            worker = ReactionWorker(
                self._connection, self._app, each, self._stopping, self._say, self._find_keys
            )
            yield each.name, worker.run

    def _projecting(self) -> Iterator[tuple[str, Callable[[], None]]]:
        for each, start in self._projections:
            worker = ProjectionWorker(self._connection, self._app, each, start, self._stopping)
            yield each.name, worker.run

    def _guarded(self, run: Callable[[], None]) -> None:
        """What nobody expected ends the server, and not only a thread of it."""
        try:
            run()
        except BaseException as error:  # a thread's outer edge
            self._failure = error

    def _raise_failure(self) -> None:
        """Ends the server when a partition cannot be served: another process may, or says why not."""
        failures = [self._failure, *(each.failure for each in self._owners.values())]
        for each in failures:
            if each is not None:
                raise each

    def _join(self) -> Consumer:
        member = consumer(
            self._connection,
            entity_group(self._app),
            auto_offset_reset="earliest",
            partition_assignment_strategy="cooperative-sticky",
            session_timeout_ms=self._session_timeout_ms,
            heartbeat_interval_ms=min(1_000, self._session_timeout_ms // 3),
            fetch_wait_max_ms=500,
            fetch_error_backoff_ms=50,
            logger=SILENT_LOGGER,
        )
        member.subscribe(
            list(self._kinds), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        return member

    # --- records ------------------------------------------------------------------------------

    def _poll(self, member: Consumer) -> list[Any]:
        first = member.poll(_POLL_S)
        if first is None:
            return []
        return [first, *member.consume(_MOST_RECORDS, 0)]

    def _dispatch(self, messages: Iterable[Any]) -> None:
        records: dict[tuple[str, int], list[Record]] = {}
        for each in messages:
            if each.error() is None:
                records.setdefault((each.topic(), each.partition()), []).append(_record(each))
            elif each.error().code() not in _TRANSIENT and not each.error().retriable():
                raise RequestError(f"{entity_group(self._app)}: {each.error().str()}")
        for place, found in records.items():
            if place in self._owners:
                self._owners[place].put(found)

    def _show_progress(self, member: Consumer) -> None:
        """Commits how far commands are carried out, so that the lag shows; the log does not need it."""
        reached = self._left | {place: each.next_command for place, each in self._owners.items()}
        self._left = {}
        moved = {place: at for place, at in reached.items() if at > self._committed.get(place, 0)}
        if not moved:
            return
        self._committed |= moved
        try:
            member.commit(offsets=[TopicPartition(*place, at) for place, at in moved.items()])
        except KafkaException:
            self._committed = {}

    # --- partitions ---------------------------------------------------------------------------

    def _on_assign(self, member: Consumer, assigned: list[TopicPartition]) -> None:
        if not assigned:
            member.incremental_assign([])
            self._joined = True
            return
        owners = {(each.topic, each.partition): self._owner(each) for each in assigned}
        try:
            with ThreadPoolExecutor(len(owners), thread_name_prefix="headrace-take-over") as pool:
                starts = dict(zip(owners, pool.map(PartitionOwner.take_over, owners.values()), strict=True))
        except HeadraceError as error:
            self._failure = error
            member.incremental_assign([])
            return
        for each in owners.values():
            each.start()
        self._owners |= owners
        self._joined = True
        member.incremental_assign([TopicPartition(*place, at) for place, at in starts.items()])
        self._say(f"{entity_group(self._app)}: serves {_listed(owners)}")

    def _owner(self, of: TopicPartition) -> PartitionOwner:
        return PartitionOwner(
            self._connection,
            self._app,
            self._kinds[of.topic],
            of.partition,
            clock=self._clock,
            on_message=self._say,
            find_keys=self._find_keys,
        )

    def _on_revoke(self, member: Consumer, revoked: list[TopicPartition]) -> None:
        self._stop_owners([(each.topic, each.partition) for each in revoked])
        self._show_progress(member)
        member.incremental_unassign(revoked)

    def _on_lost(self, member: Consumer, lost: list[TopicPartition]) -> None:
        self._stop_owners([(each.topic, each.partition) for each in lost])
        member.incremental_unassign(lost)

    def _stop_owners(self, places: Iterable[tuple[str, int]]) -> None:
        stopped = {place: self._owners.pop(place) for place in places if place in self._owners}
        if not stopped:
            return
        with ThreadPoolExecutor(len(stopped), thread_name_prefix="headrace-stop") as pool:
            list(pool.map(PartitionOwner.stop, stopped.values()))
        self._left |= {place: each.next_command for place, each in stopped.items()}


def _record(message: Any) -> Record:
    return Record(
        message.offset(), message.timestamp()[1], message.key(), message.value(), message.headers() or ()
    )


def _listed(places: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(places))
