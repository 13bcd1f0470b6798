"""Sends commands to entities, and waits for their answers; from threads and from coroutines."""

import asyncio
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headrace.client import LATEST, Connection, RawFetcher, consumer, producer
from headrace.client.topics import SILENT_LOGGER
from headrace.errors import RequestError, RetriableError
from headrace.sourcing.records import Answer, Command, Topics
from headrace.sourcing.waiters import Place, Waiter, Waiters

__all__ = ["CommandSender", "new_command_id"]

_POLL_S = 0.1
_MANY = 8  # who wait for answers


def new_command_id() -> str:
    """An id for a command that is sent for the first time."""
    return secrets.token_hex(16)


class CommandSender:
    """Sends the commands of one application from this process; safe for any number of threads.

    It reads the answers of the types that it has sent commands of, from where they ended when
    the first was sent. Close it to end its thread.
    """

    def __init__(self, connection: Connection, app: str) -> None:
        self._connection = connection
        self._app = app
        self._lock = threading.Lock()
        self._alone: Producer | None = None
        self._together: Producer | None = None
        self._reader: Consumer | None = None
        self._positions: list[TopicPartition] = []
        self._followed: set[str] = set()
        self._waiters = Waiters()
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def send(self, entity_type: str, command: Command) -> Future[Answer]:
        """Sends a command; the future has its answer, or the error of the log."""
        future: Future[Answer] = Future()
        self._send(entity_type, command, future)
        return future

    async def ask(self, entity_type: str, command: Command, timeout_s: float) -> Answer:
        """Sends a command from a coroutine, and waits for its answer; `follow` its type before.

        Raises RetriableError if there is no answer in time; what becomes of the command is then unknown.
        """
        waiter: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        try:
            self._send(entity_type, command, waiter)
            async with asyncio.timeout(timeout_s):
                return await waiter
        except TimeoutError:
            raise _no_answer(command, timeout_s) from None
        finally:
            self._waiters.drop((command.entity, command.id), waiter)

    def follow(self, entity_type: str) -> None:
        """Begins to read the answers of a type, if it has not; sending its commands then does not block."""
        with self._lock:
            self._follow(Topics.of(self._app, entity_type).answers)

    def wait(self, future: "Future[Answer]", command: Command, timeout_s: float) -> Answer:
        """The answer; raises RetriableError if there is none in time; what becomes of it is then unknown."""
        try:
            return future.result(timeout_s)
        except FutureTimeoutError:
            raise _no_answer(command, timeout_s) from None
        finally:
            self._waiters.drop((command.entity, command.id), future)

    def close(self) -> None:
        """Ends the thread; whoever still waits gets a RetriableError."""
        self._stopping.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        with self._lock:
            opened = [each for each in (self._alone, self._together) if each is not None]
            self._alone = self._together = None
            for each in opened:
                each.flush(5)
        self._waiters.settle_all(RetriableError("the sender of commands was closed; send it again"))

    # --- inside -------------------------------------------------------------------------------

    def _send(self, entity_type: str, command: Command, waiter: Waiter) -> None:
        topics = Topics.of(self._app, entity_type)
        place = (command.entity, command.id)
        with self._lock:
            if self._stopping.is_set():
                raise RetriableError("the sender of commands is closed; open another")
            self._follow(topics.answers)
            opened = self._producer()
            self._waiters.add(place, waiter)
            try:
                opened.produce(
                    topics.commands,
                    command.value(),
                    command.entity.encode(),
                    headers=list(command.headers()),
                    on_delivery=self._report(place),
                )
            except (KafkaException, BufferError) as error:
                self._waiters.drop(place, waiter)
                raise _refusal(topics.commands, error) from error

    def _follow(self, answers: str) -> None:
        """Reads this topic of answers from its present end on; under the lock."""
        if answers in self._followed:
            return
        with RawFetcher(self._connection) as fetcher:
            ends = fetcher.offsets(answers, LATEST)
        self._positions += [TopicPartition(answers, partition, at) for partition, at in ends.items()]
        self._followed.add(answers)
        self._wake.set()
        if self._thread is None:
            self._alone = self._open(linger_ms=0)
            self._thread = threading.Thread(target=self._run, name="headrace-answers", daemon=True)
            self._thread.start()

    def _producer(self) -> Producer:
        """One that sends at once; where many wait for answers, one that sends what comes within a millisecond
        together. Commands that do not wait for each other have no order, so there may be both.
        """
        assert self._alone is not None
        if len(self._waiters) < _MANY:
            return self._alone
        self._together = self._together or self._open(linger_ms=1)
        return self._together

    def _open(self, linger_ms: int) -> Producer:
        return producer(
            self._connection,
            enable_idempotence=False,  # whoever carries commands out knows one that comes twice by its id
            partitioner="murmur2_random",
            linger_ms=linger_ms,
            delivery_report_only_error=True,
            logger=SILENT_LOGGER,
        )

    def _report(self, place: Place) -> Callable[[KafkaError | None, Any], None]:
        def report(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                kind = RetriableError if error.retriable() else RequestError
                failure = kind(f"{message.topic()}: {error.str()}; send it again")
                self._waiters.settle([(place, failure)])

        return report

    def _run(self) -> None:
        reader = consumer(
            self._connection,
            f"{self._app}.answers",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_error_backoff_ms=50,
            logger=SILENT_LOGGER,
        )
        assigned: Mapping[tuple[str, int], int] = {}
        try:
            while not self._stopping.is_set():
                if self._wake.is_set():
                    self._wake.clear()
                    assigned = self._assign(reader, assigned)
                assigned = self._read(reader, assigned)
                for opened in (self._alone, self._together):
                    if opened is not None:
                        opened.poll(0)
        finally:
            reader.close()

    def _assign(
        self, reader: Consumer, assigned: Mapping[tuple[str, int], int]
    ) -> dict[tuple[str, int], int]:
        with self._lock:
            wanted = {(each.topic, each.partition): each.offset for each in self._positions}
        wanted |= assigned
        reader.assign([TopicPartition(*place, at) for place, at in wanted.items()])
        return wanted

    def _read(self, reader: Consumer, assigned: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        positions = dict(assigned)
        first = reader.poll(_POLL_S)
        messages: list[Any] = [] if first is None else [first, *reader.consume(2_000, 0)]
        answers = []
        for message in messages:
            if message.error() is None:
                positions[message.topic(), message.partition()] = message.offset() + 1
                if self._waiters.any_for((message.key() or b"").decode(errors="replace")):
                    answer = Answer.from_value(message.value())
                    answers.append(((answer.entity, answer.command), answer))
        self._waiters.settle(answers)
        return positions


def _refusal(topic: str, error: KafkaException | BufferError) -> RequestError | RetriableError:
    """Why the client library does not take a command; one that is too large will never be taken."""
    if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return RequestError(f"{topic}: {error.args[0].str()}; send a smaller command")
    return RetriableError(f"{topic}: {error}; try again")


def _no_answer(command: Command, timeout_s: float) -> RetriableError:
    """Nobody knows what became of the command yet."""
    return RetriableError(
        f"no answer to {command.name} for {command.entity!r} within {timeout_s:.0f} s: is `headrace serve` "
        f"running? The command may still be carried out; send it again with command_id={command.id!r} to "
        "learn what became of it"
    )
