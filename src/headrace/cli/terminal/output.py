"""Where results go: plain data as JSON for machines, as tables for people.

Results go to stdout, notes and errors to stderr. Every cell of a table is
escaped, since names of groups and clients are other people's data.
"""

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from headrace.cli.terminal.payloads import escape
from headrace.clock import SystemClock

__all__ = ["Output", "ReaderGoneError", "cell", "progress", "table_text"]

Data = dict[str, Any]
_PROGRESS_AFTER_MS, _PROGRESS_EVERY_MS = 1000, 250
UNKNOWN = "–"  # noqa: RUF001 - a dash for a reader, not an operator


class ReaderGoneError(Exception):
    """The reader of our output has left; there is nobody to tell, and nothing more to do."""


class Output:
    """One command's way to stdout and stderr."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def document(self, data: Data, render: Callable[[Data], str]) -> None:
        """The command's one result."""
        self.write(json.dumps(data, indent=2) if self.as_json else render(data))

    def line(self, data: Data) -> None:
        """One JSON line of a stream."""
        self.write(json.dumps(data))

    def write(self, text: str) -> None:
        """A line to stdout, at once; raises ReaderGoneError when nobody reads it any more."""
        self.write_bytes(text.encode(errors="backslashreplace") + b"\n")

    def write_bytes(self, data: bytes) -> None:
        """Bytes to stdout as they are, at once."""
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError as error:
            raise ReaderGoneError from error

    def farewell(self) -> None:
        """The last line of a command that was told to stop and did; nothing for machines and in vain."""
        if not self.as_json:
            with contextlib.suppress(ReaderGoneError):
                self.write("stopped")

    def note(self, text: str) -> None:
        """Something the user should know that is no result."""
        self._aside("note", text)

    def error(self, text: str, **fields: Any) -> None:
        """Why the command fails; with --json an object that has `error` and the given fields."""
        self._aside("error", text, **fields)

    def _aside(self, kind: str, text: str, **fields: Any) -> None:
        text = escape(" ".join(text.split("\n")))
        line = json.dumps({kind: text, **fields}) if self.as_json else f"{kind}: {text}"
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def cell(value: Any) -> str:
    """A value as a table shows it: digits grouped, None as a dash, text escaped."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else escape(str(value))


def table_text(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None) -> str:
    """A table as text for this terminal; nothing is cut off, long cells are folded.

    A column of numbers is aligned to the right.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    listed = [list(row) for row in rows]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        present = [row[index] for row in listed if row[index] is not None]
        numeric = bool(present) and all(isinstance(each, int) for each in present)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in listed:
        table.add_row(*(Text(cell(value)) for value in row))
    heading = f"{escape(title)}\n" if title else ""
    return heading + _rendered(table)


def _rendered(renderable: Any) -> str:
    from rich.console import Console

    # Into a pipe a table is as wide as it needs to be; on a terminal as wide as that.
    width = None if sys.stdout.isatty() else 10_000
    console = Console(file=sys.stdout, width=width, highlight=False)
    with console.capture() as capture:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n"))


@contextlib.contextmanager
def progress(what: str, count: Callable[[], int]) -> Iterator[Callable[[], None]]:
    """A running count on stderr for a person who waits; silent when nobody watches.

    Yields a function to call often; it redraws the count now and then, and the end erases it.
    """
    if not sys.stderr.isatty():
        yield lambda: None
        return
    clock = SystemClock()
    began_ms = clock.monotonic_ms()
    due_ms = began_ms + _PROGRESS_AFTER_MS

    def advance() -> None:
        nonlocal due_ms
        now_ms = clock.monotonic_ms()
        if now_ms >= due_ms:
            due_ms = now_ms + _PROGRESS_EVERY_MS
            rate = count() * 1000 // (now_ms - began_ms)
            sys.stderr.write(f"\r\x1b[K{count():,} {what}, {rate:,} a second")
            sys.stderr.flush()

    try:
        yield advance
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
