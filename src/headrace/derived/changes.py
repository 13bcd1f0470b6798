"""Records of a topic as changes of rows. Pure.

A row is known by the bytes of its record's key. What cannot be read becomes an `UnreadableChange`,
with the reason; records that say nothing of rows become None.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from headrace.derived.spec import Format
from headrace.views.topic import LEDGER_KEY

__all__ = ["Row", "RowChange", "UnreadableChange", "canonical", "merged", "read_change"]

Row = dict[str, Any]

_PLACEHOLDER = "__debezium_unavailable_value"
_PRECISE = 1 << 53


class RowChange(NamedTuple):
    """A row as it now is, or None where it is gone; fields in `unchanged` have the value they had."""

    key: bytes
    row: Row | None
    unchanged: tuple[str, ...] = ()


class UnreadableChange(NamedTuple):
    """A record that is no change of a row, and why."""

    reason: str


def read_change(key: bytes | None, value: bytes | None, style: Format) -> RowChange | UnreadableChange | None:
    """What a record says of a row."""
    if key == LEDGER_KEY:
        return None
    if value is None:
        return UnreadableChange("a tombstone without a key") if key is None else RowChange(key, None)
    try:
        said = orjson.loads(value)
    except ValueError as error:
        return UnreadableChange(f"the value is not JSON: {error}")
    if not isinstance(said, dict):
        return UnreadableChange("the value is JSON, but not an object")
    if style == "debezium":
        return _debezium(key, said)
    if key is None:
        return UnreadableChange("the record has no key, so its row cannot be distinguished from others")
    return RowChange(key, said) if style == "upserts" else _of_view(key, said)


def _debezium(key: bytes | None, said: Mapping[str, Any]) -> RowChange | UnreadableChange:
    inner = said.get("payload")
    change = inner if isinstance(inner, dict) else said
    op, after = change.get("op"), change.get("after")
    if op == "t":
        return UnreadableChange("a truncate names no keys; captures of Headrace write deletes in its place")
    if key is None:
        return UnreadableChange("the record has no key, so its row cannot be distinguished from others")
    if op == "d":
        return RowChange(key, None)
    if op not in ("c", "r", "u"):
        return UnreadableChange("op is missing or unknown: not a change in Debezium's envelope")
    if not isinstance(after, dict):
        return UnreadableChange("after is no row, though the change is no delete")
    named = change.get("unchanged") or ()
    kept = tuple(name for name, each in after.items() if each == _PLACEHOLDER)
    row = {name: each for name, each in after.items() if name not in kept}
    return RowChange(key, row, (*kept, *named))


def _of_view(key: bytes, said: Mapping[str, Any]) -> RowChange | UnreadableChange:
    kind, after = said.get("kind"), said.get("after")
    if kind == "retract":
        return RowChange(key, None)
    if isinstance(after, dict):
        return RowChange(key, after)
    return UnreadableChange("not a change of a view: it has no row in after")


def merged(change: RowChange, before: Row | None) -> Row | None:
    """The whole row after a change, with the values that it left as they were."""
    if change.row is None or not change.unchanged or before is None:
        return change.row
    kept = {name: before[name] for name in change.unchanged if name in before}
    return {**change.row, **kept}


def canonical(row: Mapping[str, Any]) -> bytes:
    """One text for equal rows: fields in order, without nulls, numbers in one notation."""
    there = {name: _plain(each) for name, each in row.items() if each is not None}
    return orjson.dumps(there, option=orjson.OPT_SORT_KEYS)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _PRECISE else value
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value
