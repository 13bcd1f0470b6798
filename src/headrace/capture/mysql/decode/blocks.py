"""Rows of an event of the binary log, or of a chunk of a snapshot, encoded in one call of a kernel.

`LogRows`, `TextRows` and `Envelope` define what a change looks like; the kernel makes the same bytes of
what is plain, and stops before any other row: keys that change, days that are none elsewhere, very large
and very small numbers, letters of several bytes that are not UTF-8, whatever is malformed. Such a row is
read as ever.
"""

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate

import orjson

from headrace.capture.change import Change, ChangeBlock, EncodedChanges, RowBlock
from headrace.capture.envelope import Envelope
from headrace.capture.mysql.decode.binlog import RowsEvent
from headrace.capture.mysql.decode.charsets import BINARY, extends_ascii, is_utf8, upper_letters
from headrace.capture.mysql.decode.column_types import BLOBS, INTEGER_BYTES, STRINGS, TypeCode, type_code
from headrace.capture.mysql.decode.decimals import decimal_bytes
from headrace.capture.mysql.decode.rows import LogRows, TextRows
from headrace.capture.mysql.decode.values import Kind, LoggedColumn
from headrace.capture.mysql.wire import read_row
from headrace.kernels import (
    LogColumnLayout,
    LogEvent,
    LogKind,
    LogTable,
    RowEncoder,
    Stop,
    TextKind,
    encode_logged,
    encode_texts,
)

__all__ = ["AnsweredRows", "RowsBlock", "log_table", "source_of_row", "text_table"]

_MOST_COLUMNS = 1600
_MOST_DIGITS = 65
_BEHIND_ROW = b',"thread":null,"query":null'
_FIXED = {
    TypeCode.YEAR: (LogKind.YEAR, 1),
    TypeCode.FLOAT: (LogKind.FLOAT, 4),
    TypeCode.DOUBLE: (LogKind.DOUBLE, 8),
    TypeCode.DATE: (LogKind.DATE, 3),
    TypeCode.NEWDATE: (LogKind.DATE, 3),
}
_MOMENTS = {
    TypeCode.TIMESTAMP: (LogKind.TIMESTAMP, 4),
    TypeCode.DATETIME: (LogKind.DATETIME, 5),
    TypeCode.TIME: (LogKind.TIME, 3),
}


def source_of_row(said: bytes, number: int) -> bytes:
    """The members of `source`, of which `said` are those before the number of the row."""
    return b"%b%d%b" % (said, number, _BEHIND_ROW)


class RowsBlock(ChangeBlock):
    """The rows of an event; `said` is what their `source` says before the number of each."""

    def __init__(
        self, rows: RowsEvent, reader: LogRows, table: LogTable, encoder: RowEncoder, said: bytes
    ) -> None:
        self._rows, self._reader, self._table = rows, reader, table
        self._encoder, self._said = encoder, said
        self.tables = (reader.table,)

    def changes(self) -> Iterator[Change]:
        return self._reader.changes(self._rows, lambda number: source_of_row(self._said, number))

    def encoded(self, envelope: Envelope, now_ms: int) -> Iterator[EncodedChanges | Change]:
        name, data, at = self._reader.table, self._rows.data, self._rows.at
        event = self._event(envelope, now_ms)
        while at < len(data):
            event.total, event.order = envelope.total, envelope.counts.get(name, 0)
            done = encode_logged(self._encoder, data, at, self._table, event)
            at = done.end
            envelope.count(name, done.count)
            if done.count:
                yield EncodedChanges(self._encoder.octets, self._encoder.numbers, done.count, {0: name})
            if done.stop is Stop.NOT_PLAIN:
                changes, at = self._reader.change(self._rows, at, source_of_row(self._said, event.row))
                event.row += 1
                yield from changes

    def _event(self, envelope: Envelope, now_ms: int) -> LogEvent:
        texts, op = envelope.texts(now_ms), self._rows.op
        return LogEvent(
            op=op,
            source=envelope.source_text(self._reader.table) + b"," + self._said,
            behind_row=_BEHIND_ROW + texts.before_op + op.encode() + texts.behind_op,
            between_orders=texts.between_orders,
            end=texts.end,
        )


class AnsweredRows(RowBlock):
    """Rows of a table as a query has answered them; `said` is what their `source` says."""

    def __init__(
        self,
        bodies: Sequence[bytes],
        reader: TextRows,
        table: LogTable | None,
        encoder: RowEncoder,
        said: bytes,
    ) -> None:
        self._bodies, self._reader, self._table = bodies, reader, table
        self._encoder, self._said = encoder, said

    def rows(self) -> Iterator[Change]:
        return map(self._change, self._bodies)

    def _change(self, body: bytes) -> Change:
        reader = self._reader
        values = reader.row(read_row(body))
        return Change(reader.table, "r", reader.key_of(values), None, reader.json(values), self._said)

    def encoded(self, envelope: Envelope, read_us: int, now_ms: int) -> Iterator[EncodedChanges | Change]:
        if self._table is None:
            yield from self.rows()
            return
        name, number = self._reader.table, 0
        behind = envelope.snapshot_text(name, self._said, read_us, now_ms)
        data, ends = b"".join(self._bodies), array("q", accumulate(map(len, self._bodies)))
        while number < len(ends):
            done = encode_texts(self._encoder, data, ends, number, self._table, behind)
            number = done.end
            if done.count:
                yield EncodedChanges(self._encoder.octets, self._encoder.numbers, done.count, {0: name})
            if done.stop is Stop.NOT_PLAIN:
                yield self._change(self._bodies[number])
                number += 1


def log_table(columns: Sequence[LoggedColumn], key: Sequence[str]) -> LogTable | None:
    """The table as the kernel encodes rows of it; None if it has columns that only Python knows."""
    layouts = [each for each in (_layout(column, column.name in key) for column in columns) if each]
    if len(layouts) < len(columns) or not 0 < len(columns) <= _MOST_COLUMNS:
        return None
    return LogTable(layouts)


def _layout(column: LoggedColumn, in_key: bool) -> LogColumnLayout | None:
    found = _encoded_as(column)
    if found is None:
        return None
    labels = upper_letters(column.charset) if found[0] is LogKind.LETTERS else column.labels
    said = [orjson.dumps(each)[1:-1] for each in labels]
    return LogColumnLayout(orjson.dumps(column.name) + b":", found[0], in_key, found[1], found[2], said)


def _encoded_as(column: LoggedColumn) -> tuple[LogKind, int, int] | None:
    """Kind, size and digits of a column, as the kernel has them."""
    code, meta = type_code(column.code, column.meta)
    if code in INTEGER_BYTES:
        return LogKind.UNSIGNED if column.is_unsigned else LogKind.SIGNED, INTEGER_BYTES[TypeCode(code)], 0
    if code in _FIXED:
        return *_FIXED[TypeCode(code)], 0
    if code in _MOMENTS and 0 <= meta <= 6:
        kind, size = _MOMENTS[TypeCode(code)]
        return kind, size + (meta + 1) // 2, meta
    if code == TypeCode.DECIMAL:
        return _decimal(meta & 0xFF, meta >> 8)
    if code == TypeCode.BIT:
        return _bits((meta >> 8) * 8 + (meta & 0xFF))
    if code == TypeCode.ENUM and 1 <= meta <= 8:
        return LogKind.ENUM, meta, 0
    if code == TypeCode.SET and 1 <= meta <= 8 and len(column.labels) <= 64:
        return LogKind.SET, meta, 0
    if column.kind is not None:
        return None
    if code in STRINGS:
        return _counted(column.charset, 1 if meta < 256 else 2, meta if code == TypeCode.STRING else 0)
    return _counted(column.charset, meta, 0) if code in BLOBS and 1 <= meta <= 4 else None


def _decimal(digits: int, scale: int) -> tuple[LogKind, int, int] | None:
    if not 0 < digits <= _MOST_DIGITS or scale > digits:
        return None
    return LogKind.DECIMAL, decimal_bytes(digits, scale), digits << 8 | scale


def _bits(bits: int) -> tuple[LogKind, int, int] | None:
    if bits == 1:
        return LogKind.BIT, 1, 0
    return (LogKind.BITS, (bits + 7) // 8, 0) if 1 < bits <= 64 else None


def _counted(charset: str, width: int, least_bytes: int) -> tuple[LogKind, int, int] | None:
    """Texts and bytes behind their length, which has `width` bytes."""
    if charset == BINARY:
        return LogKind.BYTES, width, least_bytes
    if is_utf8(charset):
        return LogKind.UTF8, width, 0
    if upper_letters(charset):
        return LogKind.LETTERS, width, 0
    return (LogKind.ASCII, width, 0) if extends_ascii(charset) else None


_TEXTS = {
    Kind.INTEGER: TextKind.INTEGER,
    Kind.YEAR: TextKind.INTEGER,
    Kind.FLOAT: TextKind.FLOAT,
    Kind.DOUBLE: TextKind.DOUBLE,
    Kind.DECIMAL: TextKind.DECIMAL,
    Kind.BIT: TextKind.BIT,
    Kind.BITS: TextKind.BITS,
    Kind.DATE: TextKind.DATE,
    Kind.TIME: TextKind.TIME,
    Kind.DATETIME: TextKind.DATETIME,
    Kind.TIMESTAMP: TextKind.TIMESTAMP,
    Kind.TEXT: TextKind.UTF8,
    Kind.ENUM: TextKind.UTF8,
    Kind.SET: TextKind.UTF8,
    Kind.JSON: TextKind.UTF8,
    Kind.BYTES: TextKind.BYTES,
    Kind.UUID: TextKind.ASCII,
    Kind.INET4: TextKind.ASCII,
    Kind.INET6: TextKind.ASCII,
}


def text_table(columns: Sequence[tuple[str, Kind, int]], key: Sequence[str]) -> LogTable | None:
    """A table by names, kinds and digits of its columns, as the kernel encodes what queries answer.

    None if it has columns that only Python knows.
    """
    if any(kind not in _TEXTS for _, kind, _ in columns) or not 0 < len(columns) <= _MOST_COLUMNS:
        return None
    return LogTable(
        [
            LogColumnLayout(orjson.dumps(name) + b":", _TEXTS[kind], name in key, digits=digits)
            for name, kind, digits in columns
        ]
    )
