"""A bare connection that speaks kio's schemas: for tests about connections, not about clients.

Nothing of ours is used to build or read a message, so the broker's codec is
judged by another one.
"""

import asyncio
import io
import struct
import time
from collections.abc import Mapping
from datetime import timedelta
from pkgutil import resolve_name
from typing import Any, Self

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from kio.schema.create_topics.v7 import request as create
from kio.schema.fetch.v12 import request as fetch
from kio.schema.index import api_key_map, schema_name_map
from kio.schema.produce.v9 import request as produce
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

_length = struct.Struct(">i")


def schema(api_key: int, version: int, kind: EntityType) -> type[Any]:
    """kio's class for a request or response."""
    found: type[Any] = resolve_name(schema_name_map[api_key_map[api_key]][version][kind])
    return found


def frame_of(body: Any, correlation_id: int = 1) -> bytes:
    """A whole request, its length included."""
    kind = type(body)
    header_schema = kind.__header_schema__
    fields: dict[str, Any] = {"request_api_key": kind.__api_key__, "request_api_version": kind.__version__}
    fields |= {"correlation_id": i32(correlation_id), "client_id": "raw"}
    known = {name: value for name, value in fields.items() if name in header_schema.__dataclass_fields__}
    out = io.BytesIO()
    entity_writer(header_schema)(out, header_schema(**known))
    entity_writer(kind)(out, body)
    return _length.pack(out.tell()) + out.getvalue()


def answer_in(request: Any, frame: bytes) -> Any:
    """The response to `request` in a frame (without its length)."""
    kind = schema(request.__api_key__, request.__version__, EntityType.response)
    _, position = entity_reader(kind.__header_schema__)(frame, 0)
    answer, _ = entity_reader(kind)(frame, position)
    return answer


def batch_of(values: list[bytes]) -> bytes:
    """One record batch, built by aiokafka."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    now_ms = int(time.time() * 1000)  # with an old time, retention would rightly delete it
    for offset, value in enumerate(values):
        builder.append(offset, now_ms, None, value, [])
    return bytes(builder.build())


def values_in(records: bytes | None) -> list[tuple[int, bytes]]:
    """Offset and value of every record of whole batches, CRCs checked."""
    found, batches = [], MemoryRecords(records or b"")
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc(), "a batch with a wrong CRC was served"
        found += [(record.offset, record.value) for record in batch]
    return found


def codecs_in(records: bytes) -> list[int]:
    """The codec of every batch, as its header has it."""
    found, position = [], 0
    while position < len(records):
        _, size = struct.unpack_from(">qi", records, position)
        (attributes,) = struct.unpack_from(">h", records, position + 21)
        found.append(attributes & 7)
        position += 12 + size
    return found


def produce_request(topic: str, values: list[bytes], partition: int = 0) -> produce.ProduceRequest:
    data = produce.PartitionProduceData(index=i32(partition), records=batch_of(values))
    return produce.ProduceRequest(
        acks=i16(-1),
        timeout=i32Timedelta(timedelta(seconds=30)),
        topic_data=(produce.TopicProduceData(name=topic, partition_data=(data,)),),
    )


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
) -> fetch.FetchRequest:
    wanted = fetch.FetchPartition(
        partition=i32(partition), fetch_offset=i64(offset), partition_max_bytes=i32(max_bytes)
    )
    return fetch.FetchRequest(
        max_wait=i32Timedelta(timedelta(milliseconds=max_wait_ms)),
        min_bytes=i32(min_bytes),
        max_bytes=i32(max_bytes),
        isolation_level=i8(0),
        session_id=i32(0),
        session_epoch=i32(-1),
        topics=(fetch.FetchTopic(topic=topic, partitions=(wanted,)),),
        forgotten_topics_data=(),
    )


def create_request(topic: str, partitions: int, config: Mapping[str, str]) -> create.CreateTopicsRequest:
    configs = tuple(create.CreatableTopicConfig(name=name, value=value) for name, value in config.items())
    wanted = create.CreatableTopic(
        name=topic, num_partitions=i32(partitions), replication_factor=i16(1), assignments=(), configs=configs
    )
    return create.CreateTopicsRequest(topics=(wanted,), timeout=i32Timedelta(timedelta(seconds=30)))


class RawConnection:
    """One connection; requests are answered in the order in which they were sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, bootstrap: str) -> Self:
        host, port = bootstrap.rsplit(":", 1)
        return cls(*await asyncio.open_connection(host, int(port), limit=1 << 16))

    async def send(self, frame: bytes) -> None:
        self.writer.write(frame)
        await self.writer.drain()

    async def receive(self) -> bytes:
        """The next answer; IncompleteReadError or ConnectionError once the other side closed."""
        (size,) = _length.unpack(await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def call(self, request: Any) -> Any:
        await self.send(frame_of(request))
        return answer_in(request, await self.receive())

    async def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        overrides = {name.replace("_", "."): value for name, value in config.items()}
        answer = await self.call(create_request(topic, partitions, overrides))
        assert answer.topics[0].error_code == 0, answer

    async def produce(self, topic: str, values: list[bytes], partition: int = 0) -> int:
        """The base offset of the batch that holds the values."""
        answer = await self.call(produce_request(topic, values, partition))
        placed = answer.responses[0].partition_responses[0]
        assert placed.error_code == 0, placed
        return int(placed.base_offset)

    async def fetch(self, topic: str, offset: int, **options: int) -> list[tuple[int, bytes]]:
        """Offset and value of what one fetch brings, from `offset` on."""
        answer = await self.call(fetch_request(topic, offset, **options))
        found = answer.responses[0].partitions[0]
        assert found.error_code == 0, found
        return [(at, value) for at, value in values_in(found.records) if at >= offset]

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        self.writer.transport.abort()
