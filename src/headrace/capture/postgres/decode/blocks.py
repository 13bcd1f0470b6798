"""Messages of the stream that are rows of known tables, encoded in one call of a kernel.

`RowWriter` and `Envelope` define what a change looks like; the kernel makes the same bytes of what is
plain, and stops before anything else: values of types that it does not know, keys that change,
values that were not sent again, whatever is malformed. Such a message is read as ever.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import orjson

from headrace.capture.change import Change, ChangeBlock, EncodedChanges, Item, RowBlock
from headrace.capture.envelope import Envelope
from headrace.capture.postgres.decode.pgoutput import Row, WalData, read_copy_data
from headrace.capture.postgres.decode.rows import RowWriter
from headrace.capture.postgres.decode.values import Kind
from headrace.capture.postgres.wire import Frames, read_raw_row
from headrace.errors import CorruptionError
from headrace.kernels import (
    FoundMessages,
    RowColumnLayout,
    RowEncoder,
    RowTable,
    RowTables,
    RowTexts,
    Stop,
    UsedTable,
)

__all__ = ["AnsweredRows", "MessageBlock", "answered_values", "row_table"]

_ANSWER_HEAD = 7  # a letter, the length, and how many columns there are
_LARGE_BYTES = 200_000  # more than that may not fit into what is there for many
_WORST_CASE = 18  # times its size is what a kernel wants for a row
_ROOM_BYTES = 1 << 20  # and for its envelope
_ENCODED = frozenset(Kind) - {Kind.TIMETZ, Kind.INTERVAL, Kind.BITS}
_MOST_COLUMNS = 1600


def row_table(writer: RowWriter) -> RowTable | None:
    """The table as the kernel encodes rows of it; None if it has columns that only Python knows."""
    encodings = [each.encoding for each in writer.columns]
    if len(encodings) > _MOST_COLUMNS or any(
        each.is_array or each.kind not in _ENCODED for each in encodings
    ):
        return None
    columns = [
        RowColumnLayout(orjson.dumps(each.name) + b":", each.encoding.kind, each.name in writer.key)
        for each in writer.columns
    ]
    return RowTable(writer.table, writer.oid, columns)


class MessageBlock(ChangeBlock):
    """Messages as they came, one behind the other, of the transaction `xid`.

    `read` makes items of a message by itself; `last_commit` is as `sequence` has it.
    """

    def __init__(
        self,
        data: bytes,
        found: FoundMessages,
        tables: RowTables,
        encoder: RowEncoder,
        *,
        xid: int,
        last_commit: bytes,
        read: Callable[[WalData], Iterator[Item]],
    ) -> None:
        self._data, self._tables, self._encoder = data, tables, encoder
        self._xid, self._last_commit, self._read = xid, last_commit, read
        self._names: Mapping[int, str] = {each: tables.names[each] for each in found.tables}
        self.tables = frozenset(self._names.values())

    def changes(self) -> Iterator[Item]:
        at = 0
        while at < len(self._data):
            message, at = self._message(at)
            yield from self._read(message)

    def encoded(self, envelope: Envelope, now_ms: int) -> Iterator[EncodedChanges | Item]:
        texts = self._texts(envelope, now_ms)
        sources = {each: self._source(envelope, name) for each, name in self._names.items()}
        at, encoder = 0, self._encoder
        while at < len(self._data):
            used = [
                UsedTable(each, source, envelope.counts.get(self._names[each], 0))
                for each, source in sources.items()
            ]
            done, orders = encoder.encode_changes(self._data, at, self._tables, used, texts, envelope.total)
            at = done.end
            for before, order in zip(used, orders, strict=True):
                envelope.count(self._names[before.number], order - before.order)
            if done.count:
                if encoder is not self._encoder and at == len(self._data):
                    self._data = b""  # a large row, of which nothing is left to be read
                yield EncodedChanges(encoder.octets, encoder.numbers, done.count, self._names)
            if done.stop is Stop.NOT_PLAIN and (roomy := _roomier(encoder, self._data, at)):
                encoder = roomy
            else:
                encoder = self._encoder
                if done.stop is Stop.NOT_PLAIN:
                    message, at = self._message(at)
                    yield from self._read(message)

    def _source(self, envelope: Envelope, table: str) -> bytes:
        return envelope.source_text(table) + b',"sequence":"[%b,\\"' % self._last_commit

    def _texts(self, envelope: Envelope, now_ms: int) -> RowTexts:
        texts = envelope.texts(now_ms)
        return RowTexts(
            between_places=b'\\"]","txId":%d,"lsn":' % self._xid,
            before_op=b',"xmin":null' + texts.before_op,
            behind_op=texts.behind_op,
            between_orders=texts.between_orders,
            end=texts.end,
        )

    def _message(self, at: int) -> tuple[WalData, int]:
        """The message at this place, and where it ends."""
        frames = Frames()
        size = _size(self._data, at)
        frames.feed(memoryview(self._data)[at : at + size])
        framed = frames.next()
        message = read_copy_data(framed[1]) if framed is not None else None
        if not isinstance(message, WalData):
            raise CorruptionError("a message of PostgreSQL's stream ends early")
        return message, at + size


_SAID = b'"sequence":null,"txId":null,"lsn":null,"xmin":null'


class AnsweredRows(RowBlock):
    """Rows of a table as the messages with which the server has answered a query."""

    def __init__(self, data: bytes, writer: RowWriter, encoder: RowEncoder) -> None:
        self._data, self._writer, self._encoder = data, writer, encoder

    def rows(self) -> Iterator[Change]:
        at = 0
        while at < len(self._data):
            row, at = answered_row(self._data, at)
            yield self._writer.read(row, _SAID)

    def encoded(self, envelope: Envelope, read_us: int, now_ms: int) -> Iterator[EncodedChanges | Change]:
        table, name = row_table(self._writer), self._writer.table
        if table is None:
            yield from self.rows()
            return
        behind, at = envelope.snapshot_text(name, _SAID, read_us, now_ms), 0
        encoder = self._encoder
        while at < len(self._data):
            done = encoder.encode_answers(self._data, at, table, behind)
            at = done.end
            if done.count:
                if encoder is not self._encoder and at == len(self._data):
                    self._data = b""  # a large row, of which nothing is left to be read
                yield EncodedChanges(encoder.octets, encoder.numbers, done.count, {0: name})
            if done.stop is Stop.NOT_PLAIN and (roomy := _roomier(encoder, self._data, at)):
                encoder = roomy
            else:
                encoder = self._encoder
                if done.stop is Stop.NOT_PLAIN:
                    row, at = answered_row(self._data, at)
                    yield self._writer.read(row, _SAID)


def _roomier(encoder: RowEncoder, data: bytes, at: int) -> RowEncoder | None:
    """Memory for the one row at this place, if it may have been too large for the encoder's."""
    size = _size(data, at)
    room = _WORST_CASE * size + _ROOM_BYTES
    if size < _LARGE_BYTES or len(encoder.octets) >= room:
        return None
    try:
        return RowEncoder(octets=room, records=1)
    except OSError:  # it is not to be had
        return None


def _size(data: bytes, at: int) -> int:
    """Of the message at this place."""
    return int.from_bytes(data[at + 1 : at + 5], "big") + 1


def answered_values(data: bytes, at: int, places: Sequence[int]) -> list[bytes | None]:
    """The values at these places in the row of the message there; others may be large, and are not read."""
    found: dict[int, bytes | None] = {}
    begin = at + _ANSWER_HEAD
    for place in range(max(places) + 1):
        length = int.from_bytes(data[begin : begin + 4], "big", signed=True)
        end = begin + 4 + max(length, 0)
        if place in places:
            found[place] = None if length < 0 else data[begin + 4 : end]
        begin = end
    return [found[place] for place in places]


def answered_row(data: bytes, at: int) -> tuple[Row, int]:
    """The row of the message at this place, and where that ends."""
    end = at + 1 + int.from_bytes(data[at + 1 : at + 5], "big")
    return read_raw_row(data[at + 5 : end]), end
