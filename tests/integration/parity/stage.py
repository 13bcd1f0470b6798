"""One log, ours or Kafka, as a case sees it: connections, fresh names, and short words for requests."""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headrace.client.connect.channel import Channel
from headrace.errors import RetriableError
from headrace.records import Record, decode_batch, encode_batch, read_header
from headrace.testing.batches import batches_in
from headrace.wire import Api, ErrorCode, encode_request

__all__ = [
    "TIME_MS",
    "Peer",
    "Stage",
    "batch_of",
    "code",
    "records_in",
    "since_start",
    "topics_of",
    "wait_until",
    "whole_batches",
]

TIME_MS = int(time.time() * 1000)  # recent, or retention would rightly delete the records
_PASSES = frozenset(
    (
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.concurrent_transactions,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
    )
)
_numbers = itertools.count()


def code(number: int) -> str:
    """An error's name, as Kafka's documentation has it."""
    return ErrorCode(number).name.upper()


def batch_of(
    *values: bytes | None, key: bytes | None = None, timestamp_ms: int = TIME_MS, **options: Any
) -> bytes:
    """A producer's batch: values of one key and time."""
    return bytes(
        encode_batch([Record(0, timestamp_ms, key, value) for value in values or (b"v",)], **options)
    )


def topics_of(topic: str, *partitions: Mapping[str, Any], name: str = "name") -> list[dict[str, Any]]:
    """The common shape of a request about partitions of one topic."""
    return [{name: topic, "partitions": list(partitions)}]


class Peer(Channel):
    """A bare connection: what a client library would hide is in its answers."""

    def __init__(self, port: int) -> None:
        super().__init__("127.0.0.1", port, client_id="peer", timeout_ms=30_000)

    def send_only(self, api: Api, version: int, fields: Mapping[str, Any]) -> None:
        """A request whose answer is not waited for."""
        self._correlation_id += 1
        self._socket.sendall(encode_request(api, version, self._correlation_id, "peer", fields))

    def receive(self, api: Api, version: int) -> Any:
        """The answer to the last request sent."""
        from headrace.wire.values import Cursor

        return self._decode(api, version, Cursor(self._receive()))

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def is_closed(self) -> bool:
        """Whether the other side ends the connection within some seconds, without another word."""
        self._socket.settimeout(10)
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False


class Stage:
    """What a case may use of a log; everything it opened is closed when the case ends."""

    def __init__(self, name: str, port: int, login: Callable[[Peer, str], None] | None = None) -> None:
        self.name = name
        self.port = port
        self.bootstrap = f"127.0.0.1:{port}"
        self._login = login
        self._open = contextlib.ExitStack()
        self._peer: Peer | None = None

    # -- connections

    def connect(self, user: str | None = None) -> Peer:
        """Another connection; on a secured log as `user`, the administrator unless told."""
        peer = self.connect_only()
        if self._login is not None:
            self._login(peer, user or "admin")
        return peer

    def connect_only(self) -> Peer:
        """A connection that has said nothing yet."""
        return self._open.enter_context(contextlib.closing(Peer(self.port)))

    @property
    def peer(self) -> Peer:
        if self._peer is None:
            self._peer = self.connect()
        return self._peer

    def close(self) -> None:
        self._open.close()
        self._peer = None

    def ask(self, api: Api, version: int, fields: Mapping[str, Any], *, wait_ms: int = 0) -> Any:
        return self.peer.request(api, version, fields, wait_ms=wait_ms)

    def outcome(self, api: Api, version: int, fields: Mapping[str, Any]) -> Any:
        """The answer's code, or that the connection was closed, on a connection of its own."""
        try:
            return code(self.connect().request(api, version, fields).error_code)
        except RetriableError:
            return "closed"

    def settled(
        self, ask: Callable[[], Any], read: Callable[[Any], int] = lambda answer: answer.error_code
    ) -> Any:
        """Asks until the answer is not one of those that pass by themselves."""
        deadline = time.monotonic() + 60
        while read(answer := ask()) in _PASSES and time.monotonic() < deadline:
            threading.Event().wait(0.02)
        return answer

    # -- topics

    def fresh(self, prefix: str = "case") -> str:
        return f"{prefix}-{next(_numbers)}"

    def topic(self, partitions: int = 1, **configs: object) -> str:
        """A new topic that can be written to at once."""
        name = self.fresh("topic")
        wanted = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [
                {"name": key.replace("_", "."), "value": str(value)} for key, value in configs.items()
            ],
        }
        (answer,) = self.ask(Api.CREATE_TOPICS, 7, {"topics": [wanted]}).topics
        assert answer.error_code == 0, answer.error_message
        self.wait_for_leaders(name, partitions)
        return name

    def wait_for_leaders(self, topic: str, partitions: int) -> None:
        wanted = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
        fields = {"topics": topics_of(topic, *wanted)}
        while any(part.error_code for part in self.ask(Api.LIST_OFFSETS, 6, fields).topics[0].partitions):
            threading.Event().wait(0.01)

    def topic_id(self, topic: str) -> Any:
        fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        return self.ask(Api.METADATA, 12, fields).topics[0].topic_id

    # -- records

    def produce(
        self, topic: str, batch: bytes | None, *, partition: int = 0, acks: int = -1, version: int = 9
    ) -> Any:
        """The partition's answer."""
        data = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
        fields = {"acks": acks, "timeout": 10_000, "topic_data": data}
        return self.ask(Api.PRODUCE, version, fields).responses[0].partition_responses[0]

    def placed(self, *arguments: Any, **options: Any) -> list[Any]:
        """Code and base offset of a produce request."""
        answer = self.produce(*arguments, **options)
        return [code(answer.error_code), answer.base_offset]

    def fill(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """One record a batch."""
        for value in values:
            assert self.produce(topic, batch_of(value), partition=partition).error_code == 0

    def fetch(self, topic: str, offset: int, *, version: int = 11, wait_ms: int = 0, **options: Any) -> Any:
        """The partition's answer; options are fields of the request or of its partition."""
        part = {
            "partition": options.pop("partition", 0),
            "fetch_offset": offset,
            "partition_max_bytes": options.pop("partition_max_bytes", 1 << 20),
            "current_leader_epoch": options.pop("current_leader_epoch", -1),
        }
        fields = {"max_wait": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, **options}
        fields["topics"] = [{"topic": topic, "partitions": [part]}]
        return self.ask(Api.FETCH, version, fields, wait_ms=wait_ms).responses[0].partitions[0]

    def values(self, topic: str, offset: int = 0, **options: Any) -> list[Any]:
        """Offset and value of every record that one fetch brings, markers left out."""
        return records_in(self.fetch(topic, offset, **options).records)

    def list_offset(self, topic: str, timestamp: int, *, version: int = 7, **options: Any) -> list[Any]:
        """Code, offset and timestamp."""
        part = {"partition_index": options.pop("partition", 0), "timestamp": timestamp}
        part["current_leader_epoch"] = options.pop("current_leader_epoch", -1)
        fields = {"replica_id": -1, **options, "topics": topics_of(topic, part)}
        (found,) = self.ask(Api.LIST_OFFSETS, version, fields).topics[0].partitions
        return [code(found.error_code), found.offset, since_start(found.timestamp)]


def wait_until(ask: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
    """Asks until it holds, and gives the last answer; a minute is enough for any broker under any load."""
    deadline = time.monotonic() + 60
    while not holds(answer := ask()) and time.monotonic() < deadline:
        threading.Event().wait(0.02)
    return answer


def since_start(timestamp_ms: int) -> int:
    """A record's time as an answer that is the same in every run: relative to TIME_MS; -1 is none."""
    return timestamp_ms if timestamp_ms < 0 else timestamp_ms - TIME_MS


def records_in(data: Any) -> list[Any]:
    """Offset and value of the records in whole batches; a last one that was cut off is not looked at."""
    whole = bytes(data or b"")
    found: list[Any] = []
    for position, header in whole_batches(whole):
        if not header.is_control:
            found += [[each.offset, _text(each.value)] for each in decode_batch(whole, position)]
    return found


def whole_batches(data: bytes) -> Iterable[Any]:
    end = 0
    while end + 61 <= len(data):
        size = read_header(data, end).size_bytes
        if end + size > len(data):
            break
        end += size
    return list(batches_in(data[:end]))


def _text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode()
