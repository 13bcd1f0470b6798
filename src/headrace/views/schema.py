"""The schema of a view: its name, its columns, and the key that identifies a row."""

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.errors import RequestError

__all__ = ["ViewSchema", "is_nested"]

# Short and plain, because a view's name becomes a table, a folder and a topic.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,47}", re.ASCII)
_RESERVED = ("sqlite_", "headrace_", "pg_")
_MAX_COLUMN_BYTES = 63  # PostgreSQL silently truncates longer identifiers


@dataclass(frozen=True, slots=True)
class ViewSchema:
    """A view's name, key and columns; raises RequestError for what no store could keep.

    `key` names columns of `columns`; no two rows of the view have the same values in
    them. Null is a value like any other there, NaN is equal to itself, and -0.0 is 0.0
    (as in Spark's grouping). `keep_changes` is how many of the latest changes stay
    readable by `ViewStore.changes`; 0 keeps none.
    """

    name: str
    key: tuple[str, ...]
    columns: pa.Schema
    keep_changes: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", tuple(self.key))
        object.__setattr__(self, "columns", self.columns.remove_metadata())
        _check_name(self.name)
        _check_columns(self.name, self.columns)
        _check_key(self)
        if self.keep_changes < 0:
            raise RequestError(f"view {self.name!r}: keep_changes is {self.keep_changes}; give 0 or more")

    def key_fields(self) -> list[pa.Field]:
        """The key's fields, in the key's order."""
        return [self.columns.field(name) for name in self.key]

    def value_names(self) -> list[str]:
        """The columns that are not in the key."""
        return [name for name in self.columns.names if name not in self.key]

    def to_json(self) -> dict[str, Any]:
        """A form for `from_json`; the columns are Arrow's own serialised schema."""
        return {
            "name": self.name,
            "key": list(self.key),
            "columns": base64.b64encode(self.columns.serialize().to_pybytes()).decode(),
            "keep_changes": self.keep_changes,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "ViewSchema":
        """The schema that `to_json` was called on."""
        columns = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(data["columns"])))
        return cls(data["name"], tuple(data["key"]), columns, keep_changes=data["keep_changes"])

    def same_rows(self, other: "ViewSchema") -> bool:
        """Whether rows of the other fit this one: the same key and columns."""
        return self.key == other.key and self.columns.equals(other.columns)

    def differences(self, other: "ViewSchema") -> str:
        """In words, what `other` has differently; for error messages."""
        return "; ".join(_differences(self, other)) or "nothing"


def _differences(old: ViewSchema, new: ViewSchema) -> Iterator[str]:
    if old.key != new.key:
        yield f"its key was {', '.join(old.key)} and now is {', '.join(new.key)}"
    before, after = ({each.name: each for each in schema.columns} for schema in (old, new))
    for name in before.keys() - after.keys():
        yield f"column {name!r} is gone"
    for name in after.keys() - before.keys():
        yield f"column {name!r} is new"
    for name in before.keys() & after.keys():
        if not before[name].equals(after[name]):
            yield f"column {name!r} was {before[name].type} and now is {after[name].type}"
    if before.keys() == after.keys() and old.columns.names != new.columns.names:
        yield "its columns stand in another order"


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name.lower().startswith(_RESERVED):
        raise RequestError(
            f"{name!r} cannot be a view's name: use up to 48 letters, digits, '_', '.' and '-', "
            f"beginning with a letter, a digit or '_', and not with {', '.join(_RESERVED)}"
        )


def _check_columns(view: str, columns: pa.Schema) -> None:
    if not len(columns):
        raise RequestError(f"view {view!r} has no columns")
    seen: set[str] = set()
    for each in columns:
        if not each.name or "\0" in each.name or len(each.name.encode()) > _MAX_COLUMN_BYTES:
            raise RequestError(
                f"view {view!r}: {each.name!r} cannot be a column's name: give 1 to 63 bytes without a NUL"
            )
        if each.name.lower() in seen:
            raise RequestError(
                f"view {view!r} has two columns {each.name!r}, or two that differ in case only; rename one"
            )
        seen.add(each.name.lower())
        if not _is_supported(each.type):
            raise RequestError(
                f"view {view!r}: column {each.name!r} is of type {each.type}, which no store keeps; "
                "cast it to one that Spark has (integers, double, decimal, string, binary, boolean, "
                "date, timestamp, or arrays, structs and maps of them)"
            )


def _check_key(schema: ViewSchema) -> None:
    if not schema.key:
        raise RequestError(f"view {schema.name!r} has no key; name the columns that tell its rows apart")
    if len(set(schema.key)) < len(schema.key):
        raise RequestError(f"view {schema.name!r}: its key names a column twice")
    for name in schema.key:
        if name not in schema.columns.names:
            raise RequestError(
                f"view {schema.name!r}: its key names {name!r}; its columns are "
                f"{', '.join(schema.columns.names)}"
            )
        if is_nested(schema.columns.field(name).type):
            raise RequestError(
                f"view {schema.name!r}: {name!r} cannot be part of the key, because it is of type "
                f"{schema.columns.field(name).type}; take single fields of it"
            )


def is_nested(kind: pa.DataType) -> bool:
    """Whether values of the type are arrays, structs or maps."""
    return bool(pa.types.is_nested(kind))


def _is_supported(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind):
        return _is_supported(kind.value_type)
    if types.is_struct(kind):
        return all(_is_supported(kind.field(index).type) for index in range(kind.num_fields))
    if types.is_map(kind):
        return _is_supported(kind.key_type) and _is_supported(kind.item_type)
    return bool(
        types.is_signed_integer(kind)
        or types.is_boolean(kind)
        or types.is_float64(kind)
        or types.is_float32(kind)
        or types.is_decimal128(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_date32(kind)
        or (types.is_timestamp(kind) and kind.unit == "us" and kind.tz in (None, "UTC"))
    )
