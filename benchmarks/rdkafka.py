"""librdkafka as it is, with no Python between one record and the next.

confluent-kafka makes Python objects of every record, which takes its one thread longer
than librdkafka and most brokers take for it: what is measured then is that thread. Here
the same library, the one that confluent-kafka brings along, is called for thousands of
records at a time. Only what `log_client.py` needs.
"""

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka

__all__ = ["BulkConsumer", "BulkProducer", "RdkafkaError"]

_INT, _INT32, _INT64, _SIZE = ctypes.c_int, ctypes.c_int32, ctypes.c_int64, ctypes.c_size_t
_POINTER, _TEXT = ctypes.c_void_p, ctypes.c_char_p
_AS_IT_IS = 0  # a record that librdkafka does not copy before it is sent, nor frees
_PRODUCER, _CONSUMER = 0, 1
_DELIVERED = 1  # the event that tells what became of records
_OK = 0
_TEXT_BYTES = 512


class RdkafkaError(Exception):
    """librdkafka refused something."""


class _Record(ctypes.Structure):
    _fields_ = (
        ("error", _INT),
        ("topic", _POINTER),
        ("partition", _INT32),
        ("value", _TEXT),
        ("value_bytes", _SIZE),
        ("key", _POINTER),
        ("key_bytes", _SIZE),
        ("offset", _INT64),
        ("private", _POINTER),
    )


class _Position(ctypes.Structure):
    _fields_ = (
        ("topic", _TEXT),
        ("partition", _INT32),
        ("offset", _INT64),
        ("metadata", _POINTER),
        ("metadata_bytes", _SIZE),
        ("opaque", _POINTER),
        ("error", _INT),
        ("private", _POINTER),
    )


class _Positions(ctypes.Structure):
    _fields_ = (("count", _INT), ("size", _INT), ("first", ctypes.POINTER(_Position)))


_FUNCTIONS: dict[str, tuple[Any, ...]] = {  # what each returns, and what it takes
    "conf_new": (_POINTER,),
    "conf_set": (_INT, _POINTER, _TEXT, _TEXT, _TEXT, _SIZE),
    "conf_set_events": (None, _POINTER, _INT),
    "new": (_POINTER, _INT, _POINTER, _TEXT, _SIZE),
    "destroy": (None, _POINTER),
    "topic_new": (_POINTER, _POINTER, _TEXT, _POINTER),
    "topic_destroy": (None, _POINTER),
    "produce_batch": (_INT, _POINTER, _INT32, _INT, ctypes.POINTER(_Record), _INT),
    "outq_len": (_INT, _POINTER),
    "queue_get_main": (_POINTER, _POINTER),
    "queue_poll": (_POINTER, _POINTER, _INT),
    "event_type": (_INT, _POINTER),
    "event_error": (_INT, _POINTER),
    "event_message_count": (_SIZE, _POINTER),
    "event_destroy": (None, _POINTER),
    "poll_set_consumer": (_INT, _POINTER),
    "queue_get_consumer": (_POINTER, _POINTER),
    "queue_destroy": (None, _POINTER),
    "topic_partition_list_new": (ctypes.POINTER(_Positions), _INT),
    "topic_partition_list_add": (ctypes.POINTER(_Position), ctypes.POINTER(_Positions), _TEXT, _INT32),
    "topic_partition_list_destroy": (None, ctypes.POINTER(_Positions)),
    "assign": (_INT, _POINTER, ctypes.POINTER(_Positions)),
    "position": (_INT, _POINTER, ctypes.POINTER(_Positions)),
    "consume_callback_queue": (_INT, _POINTER, _INT, _POINTER, _POINTER),
    "message_timestamp": (_INT64, _POINTER, _POINTER),
    "consumer_close": (_INT, _POINTER),
}


def _load() -> dict[str, Callable[..., Any]]:
    package = Path(confluent_kafka.__file__).parent
    folders = (package.with_name("confluent_kafka.libs"), package / ".dylibs")  # on Linux, on macOS
    found = [path for folder in folders for path in folder.glob("librdkafka*")]
    if not found:
        raise RdkafkaError("confluent-kafka brings no librdkafka along here; install its wheel from PyPI")
    library = ctypes.CDLL(str(found[0]))
    functions = {}
    for name, (returns, *takes) in _FUNCTIONS.items():
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = returns, takes
        functions[name] = function
    return functions


_rd = _load()
_LOOK_AT = ctypes.cast(_rd["message_timestamp"], _POINTER)  # type: ignore[arg-type]
"""What each record that was read is given to: librdkafka's own function that returns its timestamp."""


def _handle(kind: int, settings: Mapping[str, object], events: int = 0) -> int:
    conf, said = _rd["conf_new"](), ctypes.create_string_buffer(_TEXT_BYTES)
    for name, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if _rd["conf_set"](conf, name.encode(), text.encode(), said, _TEXT_BYTES) != _OK:
            raise RdkafkaError(said.value.decode())
    _rd["conf_set_events"](conf, events)
    handle: int | None = _rd["new"](kind, conf, said, _TEXT_BYTES)
    if handle is None:
        raise RdkafkaError(said.value.decode())
    return handle


class BulkProducer:
    """Sends the same values again and again; `refused` counts what was not acknowledged.

    The answers come as events, one for all records of a request, and the records are let go
    in the thread that sends them, as in any application that asks what became of them. Where
    librdkafka's own thread does that, the two fight for its locks, the more the fewer of the
    processors the broker takes: 13 to 15 system calls for each request of ours, 2 to 3 of Kafka's.
    """

    def __init__(self, settings: Mapping[str, object], topic: str) -> None:
        self.refused = 0
        self._handle = _handle(_PRODUCER, settings, _DELIVERED)
        self._events = _rd["queue_get_main"](self._handle)
        self._topic = _rd["topic_new"](self._handle, topic.encode(), None)

    @staticmethod
    def prepare(values: Sequence[bytes]) -> "ctypes.Array[_Record]":
        """The values as `send` takes them, for any number of times; to be kept until all are answered."""
        records = (_Record * len(values))()
        for record, value in zip(records, values, strict=True):
            record.value, record.value_bytes = value, len(value)
        return records

    def send(self, partition: int, records: "ctypes.Array[_Record]") -> None:
        """Queues them all; raises if there was no room."""
        queued = _rd["produce_batch"](self._topic, partition, _AS_IT_IS, records, len(records))
        if queued != len(records):
            raise RdkafkaError(f"only {queued} of {len(records)} records were taken")

    def __len__(self) -> int:
        """Records that are not answered yet."""
        return int(_rd["outq_len"](self._handle))

    def poll(self, timeout_s: float) -> None:
        """Takes answers that have come; waits for one if there are none."""
        wait_ms = int(timeout_s * 1000)
        while (event := _rd["queue_poll"](self._events, wait_ms)) is not None:
            if _rd["event_type"](event) == _DELIVERED and _rd["event_error"](event) != _OK:
                self.refused += _rd["event_message_count"](event)
            _rd["event_destroy"](event)
            wait_ms = 0

    def flush(self, timeout_s: float) -> int:
        """Waits for all answers; how many records are without one."""
        deadline = time.monotonic() + timeout_s
        while (unanswered := len(self)) and time.monotonic() < deadline:
            self.poll(0.01)
        return unanswered

    def close(self) -> None:
        _rd["topic_destroy"](self._topic)
        _rd["queue_destroy"](self._events)
        _rd["destroy"](self._handle)


class BulkConsumer:
    """Reads partitions of one topic from `offset` on, and looks at each record's timestamp."""

    def __init__(self, settings: Mapping[str, object], topic: str, partitions: int, offset: int) -> None:
        self._handle = _handle(_CONSUMER, settings)
        _rd["poll_set_consumer"](self._handle)
        self._queue = _rd["queue_get_consumer"](self._handle)
        self._begin = offset
        self._positions = _rd["topic_partition_list_new"](partitions)
        for partition in range(partitions):
            position = _rd["topic_partition_list_add"](self._positions, topic.encode(), partition)
            position.contents.offset = offset
        self._timestamp_type = _INT()
        if error := _rd["assign"](self._handle, self._positions):
            raise RdkafkaError(f"the partitions could not be assigned: error {error}")

    def read(self, wanted: int, timeout_s: float) -> int:
        """Goes on until at least so many records were read since it was made; how many it were.

        Fewer if none came for `timeout_s`.
        """
        read, deadline = self._read(), time.monotonic() + timeout_s
        while read < wanted and time.monotonic() < deadline:
            if _rd["consume_callback_queue"](self._queue, 100, _LOOK_AT, ctypes.byref(self._timestamp_type)):
                read, deadline = self._read(), time.monotonic() + timeout_s
        return read

    def _read(self) -> int:
        _rd["position"](self._handle, self._positions)
        positions = self._positions.contents
        # Of partitions that it has read nothing of, librdkafka knows no position; it is below 0.
        return sum(max(positions.first[i].offset - self._begin, 0) for i in range(positions.count))

    def close(self) -> None:
        _rd["topic_partition_list_destroy"](self._positions)
        _rd["queue_destroy"](self._queue)
        _rd["consumer_close"](self._handle)
        _rd["destroy"](self._handle)
