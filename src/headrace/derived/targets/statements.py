"""Rows as they go into statements of SQL: those with the same fields together, about a megabyte at a time."""

from collections.abc import Iterator, Mapping, Sequence

from headrace.derived.changes import Row

__all__ = ["by_fields", "parts"]

_STATEMENT_BYTES = 1 << 20


def by_fields(rows: Mapping[bytes, Row]) -> dict[tuple[str, ...], dict[bytes, Row]]:
    """Rows by the fields that they have a value for."""
    found: dict[tuple[str, ...], dict[bytes, Row]] = {}
    for key, row in rows.items():
        fields = tuple(sorted(name for name, each in row.items() if each is not None))
        found.setdefault(fields, {})[key] = row
    return found


def parts(texts: Sequence[str]) -> Iterator[list[str]]:
    """In order, each of about a megabyte."""
    part: list[str] = []
    size = 0
    for each in texts:
        part.append(each)
        size += len(each)
        if size >= _STATEMENT_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
