"""Records on their way to stdout: filtered, counted, and in the form that was asked for."""

import os
import sys

from headrace.cli.records.filters import Filter
from headrace.cli.records.lines import ReadRecord, record_to_json
from headrace.cli.show.record_format import Format
from headrace.cli.terminal import Output, escape, format_time, render_payload

__all__ = ["RecordPrinter", "render_record"]

BOLD, DIM, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


class RecordPrinter:
    """Shows the records that pass a filter, up to a limit."""

    def __init__(
        self,
        output: Output,
        wanted: Filter,
        *,
        values_only: bool,
        limit: int | None,
        written: Format | None = None,
    ) -> None:
        self.output = output
        self.wanted = wanted
        self.values_only = values_only
        self.limit = limit
        self.written = written
        self.shown = 0
        self.styled = sys.stdout.isatty() and "NO_COLOR" not in os.environ

    def __call__(self, record: ReadRecord) -> bool:
        """Shows one record if it passes; False once the limit is reached."""
        if not self.wanted.passes(key=record.key, value=record.value, timestamp_ms=record.timestamp_ms):
            return True
        self._show(record)
        self.shown += 1
        return self.limit is None or self.shown < self.limit

    def _show(self, record: ReadRecord) -> None:
        if self.output.as_json:
            self.output.line(record_to_json(record))
        elif self.written is not None:
            self._show_bytes(self.written(record))
        elif self.values_only:
            self._show_bytes((record.value or b"") + b"\n")
        else:
            self.output.write(render_record(record, styled=self.styled))

    def _show_bytes(self, data: bytes) -> None:
        """Raw into a pipe; on a terminal nothing of the data may be taken for a command."""
        if sys.stdout.isatty():
            keep = "\t\n" if self.written is not None else "\t"
            text, end = (data[:-1], b"\n") if data.endswith(b"\n") else (data, b"")
            data = escape(text.decode(errors="backslashreplace"), keep=keep).encode() + end
        self.output.write_bytes(data)


def render_record(record: ReadRecord, *, styled: bool = False) -> str:
    """A record for people: a line saying which it is, then its headers and value, indented.

    Only lines that begin in the first column are ours: data that contains line
    breaks cannot pass for another record.
    """
    time = format_time(record.timestamp_ms) if record.timestamp_ms >= 0 else "no time"
    head = f"{record.topic}:{record.partition}@{record.offset}"
    key = "no key" if record.key is None else f"key {_one_line(record.key)}"
    bold, dim, plain = (BOLD, DIM, PLAIN) if styled else ("", "", "")
    lines = [f"{bold}{head}{plain} {dim}{time}{plain} {key}"]
    for name, payload in record.headers:
        lines.append(f"  {dim}{escape(name)}: {'null' if payload is None else _one_line(payload)}{plain}")
    body = "null" if record.value is None else render_payload(record.value)
    lines += [f"    {line}" for line in body.split("\n")]
    return "\n".join(lines)


def _one_line(payload: bytes) -> str:
    try:
        return escape(payload.decode())
    except UnicodeDecodeError:
        return f"0x{payload.hex()}"
