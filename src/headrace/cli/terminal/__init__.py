"""What goes to a terminal or a pipe: output, tables, payloads, times. Knows no command."""

from headrace.cli.terminal.output import Output, ReaderGoneError, cell, progress, table_text
from headrace.cli.terminal.payloads import decode_payload, encode_payload, escape, render_payload
from headrace.cli.terminal.times import format_span, format_time, parse_time

__all__ = [
    "Output",
    "ReaderGoneError",
    "cell",
    "decode_payload",
    "encode_payload",
    "escape",
    "format_span",
    "format_time",
    "parse_time",
    "progress",
    "render_payload",
    "table_text",
]
