"""A record by a format, with kcat's letters and escapes. Pure.

`%t` topic, `%p` partition, `%o` offset, `%T` timestamp in milliseconds, `%k` key, `%s` value,
`%K` and `%S` their lengths in bytes (-1 for a null), `%R` the value's length in four bytes,
the highest first, `%h` headers as name=value with commas between, `%%` a percent sign;
`\\n`, `\\r`, `\\t`, `\\\\` and `\\x` with two hex digits.
"""

import re
from collections.abc import Callable

from headrace.cli.failures import UsageError
from headrace.cli.records.lines import ReadRecord

__all__ = ["Format", "parse_format"]

Format = Callable[[ReadRecord], bytes]

_PIECE = re.compile(r"%(.)|\\x([0-9a-fA-F]{2})|\\(.)|([^%\\]+)|([%\\])", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}
_LETTERS: dict[str, Format] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp_ms,
    "k": lambda record: record.key or b"",
    "s": lambda record: record.value or b"",
    "K": lambda record: _length(record.key),
    "S": lambda record: _length(record.value),
    "R": lambda record: len(record.value or b"").to_bytes(4, "big"),
    "h": lambda record: b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in record.headers
    ),
    "%": lambda _: b"%",
}


def parse_format(text: str) -> Format:
    """What writes a record so; raises UsageError for a letter or an escape that there is not."""
    pieces: list[Format] = [_piece(found) for found in _PIECE.finditer(text)]
    return lambda record: b"".join(piece(record) for piece in pieces)


def _piece(found: re.Match[str]) -> Format:
    letter, code, escaped, plain, _ = found.groups()
    if letter is not None and letter in _LETTERS:
        return _LETTERS[letter]
    if code is not None:
        return _constant(bytes.fromhex(code))
    if escaped is not None and escaped in _ESCAPES:
        return _constant(_ESCAPES[escaped])
    if plain is not None:
        return _constant(plain.encode())
    raise UsageError(
        f"--format: {found[0]!r} is not known; use %{' %'.join(_LETTERS)} and \\n \\r \\t \\\\ \\xNN"
    )


def _constant(data: bytes) -> Format:
    return lambda _: data


def _length(payload: bytes | None) -> bytes:
    return b"%d" % (-1 if payload is None else len(payload))
