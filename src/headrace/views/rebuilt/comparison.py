"""Two versions of a view, row by row: the one that is shown, and the one that was rebuilt. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from headrace.views.batch import Offsets
from headrace.views.formats import dumps, rows_to_json
from headrace.views.schema import ViewSchema

__all__ = ["Comparison", "RowDifference", "compare_versions", "differing_rows"]

_MOST_LISTED = 1_000

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A key whose rows differ; None where there is no row."""

    key: Row
    shown: Row | None
    rebuilt: Row | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What differs. `differences` are the first of all, `columns` says in words how the columns differ.

    `shown_at` and `rebuilt_at` are the offsets that the two reflect: where those of the rebuilt one are
    higher, rows may also differ because of the records between.
    """

    view: str
    shown_rows: int
    rebuilt_rows: int
    changed: int
    added: int
    removed: int
    differences: tuple[RowDifference, ...]
    columns: str
    shown_at: Offsets
    rebuilt_at: Offsets

    @property
    def is_equal(self) -> bool:
        return not (self.changed or self.added or self.removed or self.columns)

    @property
    def newer_records(self) -> int:
        """How many offsets the rebuilt view has read beyond the shown one."""
        return sum(
            max(0, end - self.shown_at.get(topic, {}).get(partition, 0))
            for topic, ends in self.rebuilt_at.items()
            for partition, end in ends.items()
        )

    def in_words(self) -> str:
        """For messages: how much differs, and what to do about it."""
        if self.is_equal:
            return f"view {self.view}: rebuilt, and nothing differs"
        behind = f", which has read {self.newer_records:,} more records" if self.newer_records else ""
        columns = f" ({self.columns})" if self.columns else ""
        return (
            f"view {self.view}: rebuilt{behind}, and held back: {self.changed:,} rows differ{columns}, "
            f"{self.added:,} are new, {self.removed:,} are gone. `headrace views compare {self.view}` lists "
            f"them, `headrace views switch {self.view}` shows the new ones"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `from_json`."""
        return {**asdict(self), "shown_at": _text(self.shown_at), "rebuilt_at": _text(self.rebuilt_at)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Comparison":
        found = tuple(RowDifference(**each) for each in data["differences"])
        offsets = {name: _numbers(data[name]) for name in ("shown_at", "rebuilt_at")}
        return cls(**{**data, **offsets, "differences": found})


def compare_versions(
    shown: tuple[ViewSchema, pa.Table, Offsets], rebuilt: tuple[ViewSchema, pa.Table, Offsets]
) -> Comparison:
    """What a rebuilt view would change about the one that is shown, in the columns that both have.

    Where the keys are other columns, all rows of the one are gone and all of the other are new.
    """
    (old, ours, shown_at), (new, theirs, rebuilt_at) = shown, rebuilt
    columns = "" if new.same_rows(old) else old.differences(new)
    common = [name for name in old.columns.names if name in new.columns.names]
    if old.key == new.key:
        pairs = differing_rows(new.key, ours.select(common), theirs.select(common))
        found = [RowDifference(*each) for each in pairs]
    else:
        found = [RowDifference(_keyed(old, each), each, None) for each in rows_to_json(ours)]
        found += [RowDifference(_keyed(new, each), None, each) for each in rows_to_json(theirs)]
    added = sum(each.shown is None for each in found)
    removed = sum(each.rebuilt is None for each in found)
    return Comparison(
        view=new.name,
        shown_rows=ours.num_rows,
        rebuilt_rows=theirs.num_rows,
        changed=len(found) - added - removed,
        added=added,
        removed=removed,
        differences=tuple(found[:_MOST_LISTED]),
        columns=columns,
        shown_at=shown_at,
        rebuilt_at=rebuilt_at,
    )


def differing_rows(
    key: Sequence[str], ours: pa.Table, theirs: pa.Table
) -> Iterator[tuple[Row, Row | None, Row | None]]:
    """The keys whose rows differ in any bit, with both rows; None where there is none."""
    one, other = (_by_key(key, table) for table in (ours, theirs))
    for each in sorted(one.keys() | other.keys()):
        pair = one.get(each), other.get(each)
        if pair[0] != pair[1]:
            found = pair[0] or pair[1] or {}
            yield {name: found[name] for name in key}, *pair


def _by_key(key: Sequence[str], table: pa.Table) -> dict[str, dict[str, Any]]:
    """Rows by their key, in a form in which equal bits are equal and nothing else is.

    A key that is there again has a name of its own, so that the other side has no such row.
    """
    found: dict[str, dict[str, Any]] = {}
    for row in rows_to_json(table):
        name = dumps([row[each] for each in key])
        found[f"{name} again" if name in found else name] = row
    return found


def _keyed(schema: ViewSchema, row: Row) -> Row:
    return {name: row[name] for name in schema.key}


def _text(offsets: Offsets) -> dict[str, dict[str, int]]:
    return {topic: {str(partition): at for partition, at in each.items()} for topic, each in offsets.items()}


def _numbers(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {topic: {int(partition): at for partition, at in each.items()} for topic, each in offsets.items()}
