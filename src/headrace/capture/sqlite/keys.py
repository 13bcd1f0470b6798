"""Primary keys as JSON: different keys of a table have different JSON, or are refused. Pure.

Numbers and text differ in JSON as they do in SQLite. A BLOB (base64) and an infinite REAL become
text there, so a key column holds one of these kinds only: BLOBs, if it is declared BLOB or
BINARY, and text otherwise.
"""

from collections.abc import Callable, Sequence

from headrace.capture.change import Column
from headrace.capture.sqlite.values import ReplacedText, Value, is_infinite, row_encoder
from headrace.errors import RequestError

__all__ = ["UnclearKey", "key_encoder"]


class UnclearKey(RequestError):  # noqa: N818 - what a row has, not what went wrong
    """Nothing would tell the row with this key from others; once it is gone its table can be read again.

    `what` is the message without what to do.
    """

    def __init__(self, what: str, *, capture: str) -> None:
        super().__init__(f"{what}; correct the row, then `headrace capture resnapshot {capture}`")
        self.what = what


def key_encoder(
    columns: Sequence[Column], key: Sequence[str], *, where: str, capture: str
) -> Callable[[Sequence[Value]], bytes | None]:
    """A function from the values of a row to its key; None where the table has none.

    It raises UnclearKey for a row whose key another row may have as well; `where` names the table.
    """
    if not key:
        return lambda _: None
    at = [number for number, each in enumerate(columns) if each.name in key]
    of_key = [columns[each] for each in at]
    encode, clear = row_encoder(of_key), [_clear_types(each) for each in of_key]

    def encode_key(values: Sequence[Value]) -> bytes:
        found = [values[each] for each in at]
        for value, types, column in zip(found, clear, of_key, strict=True):
            if value.__class__ not in types or (value.__class__ is float and is_infinite(value)):
                raise UnclearKey(
                    f"{where}: a row with {_kind(value)} in column {column.name} of its primary key "
                    "cannot be captured, because it cannot be distinguished from others",
                    capture=capture,
                )
        return encode(found)

    return encode_key


def _clear_types(column: Column) -> tuple[type, ...]:
    """The types of values that JSON distinguishes in a key column of this declared type."""
    holds_blobs = any(each in column.type.upper() for each in ("BLOB", "BINARY"))
    return (int, float, bytes if holds_blobs else str)


def _kind(value: Value) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, ReplacedText):
        return "text that is not UTF-8"
    if isinstance(value, bytes):
        return "a BLOB (its type is not BLOB)"
    return "text (its type is BLOB)" if isinstance(value, str) else "an infinite number"
