"""Where results go: plain data as JSON for machines, as tables for people.

Results go to stdout, notes and errors to stderr. Every cell of a table is
escaped, since names of groups and clients are other people's data.
"""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headrace.cli.values import escape

__all__ = ["Output", "ReaderGoneError", "cell", "table_text"]

Data = dict[str, Any]
UNKNOWN = "–"  # noqa: RUF001 - a dash for a reader, not an operator


class ReaderGoneError(Exception):
    """Whoever read our output has left; there is nobody to tell, and nothing more to do."""


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
