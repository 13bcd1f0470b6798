"""The owner of one partition: takes commands, decides, and writes what follows in one transaction.

A thread of its own. Taking over fences the last owner (the transactional id is that of the
partition) before anything is read, so what is read is all there is. Events, answers and the
offset of each command, which its answer carries, are written together: a command is carried out
once, whoever fails when. All commands that wait share a transaction. While many come, the next
transaction waits a moment for more of them: the answers to the last one are on their way, and each
leads to another command, as a rule. A transaction costs about the same whatever is in it.
"""

import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Final

from headrace.client import Connection
from headrace.client.write import BatchProducer, OutputRecord, RecordTooLarge
from headrace.clock import Clock
from headrace.errors import ConfigError, FencedError, RequestError, RetriableError
from headrace.records import COMMAND_PREFIX, Record, read_headers
from headrace.sourcing.entity_type import EntityType
from headrace.sourcing.partition import Decided, EntityPartition, Unreadable
from headrace.sourcing.records import CHECKPOINT_KEY, Command, Topics, read_command_record
from headrace.sourcing.restore import restore
from headrace.sourcing.sealing import FindKeys, no_keys
from headrace.sourcing.topics import partition_of

__all__ = ["PartitionOwner"]

_MOST_COMMANDS: Final = 500  # in one transaction,
_MOST_SNAPSHOTS: Final = 50  # and beside them: commands wait for both
_MOST_SNAPSHOTS_IDLE: Final = 500
_MANY: Final = 8  # commands in a transaction: more are waited for
_LONGEST_COMPANY_S: Final = 0.004
_IDLE_S: Final = 2.0
_AGAIN_S: Final = 0.5

Waiting = Command | Unreadable


class PartitionOwner:
    """Carries out the commands of one partition until it is stopped.

    `take_over` must have returned before `start`. A failed transaction is not an end: the
    partition is taken over again, as long as this process is its owner by the group. What cannot
    be tried again is in `failure`.
    """

    def __init__(
        self,
        connection: Connection,
        app: str,
        kind: EntityType,
        partition: int,
        *,
        clock: Clock,
        on_message: Callable[[str], None],
        find_keys: FindKeys = no_keys,
    ) -> None:
        self.topics = Topics.of(app, kind.name)
        self.partition = partition
        self._connection = connection
        self._app = app
        self._kind = kind
        self._clock = clock
        self._say = on_message
        self._find_keys = find_keys
        self._producer = BatchProducer(connection, f"{app}.{kind.name}-{partition}")
        self._queue: SimpleQueue[list[Record] | None] = SimpleQueue()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._state: EntityPartition | None = None
        self._written = False  # anything, since the last checkpoint
        self._saves = True
        self._company_s = 0.0  # for how long the next transaction waits for more commands
        self.failure: BaseException | None = None

    @property
    def name(self) -> str:
        return f"{self.topics.commands}-{self.partition}"

    @property
    def next_command(self) -> int:
        """The offset of the next command to carry out."""
        return 0 if self._state is None else self._state.next_command

    def take_over(self) -> int:
        """Fences the last owner and reads the partition; the offset of the next command.

        Tries again while the log does not answer, until it is stopped.
        """
        while True:
            try:
                self._producer.take_over()
                self._state = restore(
                    self._connection, self._app, self._kind, self.partition, self._find_keys
                )
                self._written = self._state.events_since_checkpoint > 0
                return self._state.next_command
            except (RetriableError, FencedError) as error:
                if self._stopping.is_set():
                    raise
                self._say(f"{self.name}: {error}")
                self._stopping.wait(_AGAIN_S)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"headrace-{self.name}", daemon=True)
        self._thread.start()

    def put(self, records: list[Record]) -> None:
        """Hands over records of commands, in the order of their offsets."""
        self._queue.put(records)

    def stop(self) -> None:
        """Ends after the current transaction; commands that wait are left to the next owner."""
        self._stopping.set()
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join()
        self._producer.close()

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            saving = False
            while not self._stopping.is_set():
                waiting = self._wait_commands(0.0 if saving else _IDLE_S)
                if waiting:
                    self._carry_out(waiting)
                elif self._written and not self._stopping.is_set():
                    self._save()
                saving = self._written and not waiting
            while self._written and self._save():
                pass
        except BaseException as error:  # a thread's outer edge: the server ends with it
            self.failure = error

    def _wait_commands(self, patience_s: float) -> list[Waiting]:
        """All that wait, up to a limit; none if there are none for so long."""
        records: list[Record] = []
        deadline = time.monotonic() + patience_s
        try:
            while len(records) < _MOST_COMMANDS:
                more = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
                if more is None:
                    break
                if not records:
                    deadline = time.monotonic() + self._company_s
                records += more
        except Empty:
            pass
        return [self._read(each) for each in records]

    def _read(self, record: Record) -> Waiting:
        try:
            command = read_command_record(self.topics.commands, self.partition, record)
        except RequestError as error:
            return self._set_aside(record, str(error), "invalid-command")
        assert self._state is not None
        right = partition_of(command.entity, self._state.partitions)
        if right != self.partition:
            reason = (
                f"commands for {command.entity!r} belong in partition {right}; let the producer choose it by "
                "the key with Kafka's own hash (librdkafka: partitioner=murmur2_random)"
            )
            return self._set_aside(record, reason, "wrong-partition")
        return command

    def _set_aside(self, record: Record, reason: str, rule: str) -> Unreadable:
        self._say(f"{self.name}, offset {record.offset}: {reason}")
        found = read_headers(record.headers, COMMAND_PREFIX)
        entity = (record.key or b"").decode(errors="replace")
        return Unreadable(record.offset, reason, rule, entity, found.get("id", ""))

    def _carry_out(self, waiting: list[Waiting]) -> None:
        """Carries out the commands, however often the log fails meanwhile."""
        while waiting and not self._stopping.is_set():
            assert self._state is not None
            waiting = [each for each in waiting if each.offset >= self._state.next_command]
            try:
                self._transact(self._state, waiting)
                return
            except RecordTooLarge as error:
                if error.topic == self.topics.snapshots:
                    self._without_snapshots(error)
                else:
                    waiting = self._smaller(waiting, error)
            except (RetriableError, FencedError) as error:
                self._say(f"{self.name}: {error}")
                self._stopping.wait(_AGAIN_S)
                if not self._stopping.is_set():
                    self.take_over()

    def _smaller(self, waiting: list[Waiting], error: RecordTooLarge) -> list[Waiting]:
        """Each command alone, so that the one whose events the log does not take is found and set aside."""
        self.take_over()
        if len(waiting) == 1:
            self._say(f"{self.name}, offset {waiting[0].offset}: {error}")
            assert self._state is not None
            if isinstance(waiting[0], Command):
                self._refuse(self._state, waiting[0], error)
            return []
        for each in waiting:
            self._carry_out([each])
        return []

    def _refuse(self, state: EntityPartition, command: Command, error: RecordTooLarge) -> None:
        answer = state.refuse(command, "too-large", str(error))
        self._write(state, Decided((), (answer,)), self._producer)

    def _transact(self, state: EntityPartition, waiting: Sequence[Waiting]) -> None:
        began = time.monotonic()
        first_event = state.next_event
        decided = state.decide(waiting, self._clock.now_ms())
        for each in decided.failures:
            self._say(f"{self.name}: {each}")
        if decided.answers:
            self._write(state, decided, self._producer, first_event)
        self._written = True
        took_s = time.monotonic() - began
        self._company_s = min(took_s, _LONGEST_COMPANY_S) if len(waiting) >= _MANY else 0.0

    def _write(
        self,
        state: EntityPartition,
        decided: Decided,
        producer: BatchProducer,
        first_event: int | None = None,
    ) -> None:
        records = [
            OutputRecord(
                self.topics.events,
                each.entity.encode(),
                each.value(),
                each.headers(),
                self.partition,
                each.at_ms,
            )
            for each in decided.events
        ]
        records += [
            OutputRecord(self.topics.answers, each.command.encode(), each.value(), (), self.partition)
            for each in decided.answers
        ]
        if decided.events:
            state.next_event += 1  # the marker of the transaction
        if state.wants_checkpoint:
            records += self._snapshots(state, _MOST_SNAPSHOTS)
        producer.write(records, first_offset=first_event if decided.events else None)

    def _save(self) -> bool:
        """Writes snapshots while nothing else is to be done; `_written` is False after the last of them.

        False if the log did not take them.
        """
        assert self._state is not None
        try:
            self._producer.write(self._snapshots(self._state, _MOST_SNAPSHOTS_IDLE))
        except RecordTooLarge as error:
            self._without_snapshots(error)
        except (RetriableError, FencedError) as error:
            self._say(f"{self.name}: {error}")
            if not self._stopping.is_set():
                self.take_over()
            return False
        return True

    def _snapshots(self, state: EntityPartition, most: int) -> list[OutputRecord]:
        """Some of the snapshots of a checkpoint, or the last and the checkpoint; none if a state has no
        form in JSON.

        Events are the truth, so the partition goes on without; the next owner reads more of them.
        """
        topic, partition = self.topics.snapshots, self.partition
        try:
            snapshots, checkpoint = state.snapshots(most) if self._saves else ([], None)
        except (ConfigError, TypeError, ValueError) as error:
            state.give_up_snapshots()
            self._written = False
            self._say(f"{self.name}: no snapshots are written: {error}")
            return []
        records = [OutputRecord(topic, entity.encode(), value, (), partition) for entity, value in snapshots]
        if checkpoint is not None:
            records.append(OutputRecord(topic, CHECKPOINT_KEY, checkpoint.value(), (), partition))
        self._written = self._saves and checkpoint is None
        return records

    def _without_snapshots(self, error: RecordTooLarge) -> None:
        """A state that the log does not take is read from events for ever, and so are its neighbours."""
        self._saves = False
        self._say(f"{self.name}: no snapshots are written from now on: {error}")
        self.take_over()
