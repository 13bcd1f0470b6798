"""The changes of a view, one by one, as followers read them. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.views.batch import ViewBatch, changed_rows
from headrace.views.formats import rows_to_json
from headrace.views.schema import ViewSchema

__all__ = ["ViewChange", "kept_changes"]


@dataclass(frozen=True, slots=True)
class ViewChange:
    """One change of a row, with values in JSON's types (see `headrace.views.formats`)."""

    sequence: int
    batch_id: int
    kind: int
    key: dict[str, Any]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


def kept_changes(schema: ViewSchema, batch: ViewBatch, sequence: int) -> tuple[list[ViewChange], int]:
    """The changes of a batch to keep, numbered from `sequence` + 1, and the last number.

    Changes beyond the view's limit are numbered but not built.
    """
    total = 0 if batch.changes is None else batch.changes.num_rows
    kept = min(total, schema.keep_changes)
    if kept == 0 or batch.changes is None:
        return [], sequence + total
    first = sequence + total - kept + 1
    return list(_changes(schema, batch, total - kept, first)), sequence + total


def _changes(schema: ViewSchema, batch: ViewBatch, start: int, first: int) -> Iterator[ViewChange]:
    assert batch.changes is not None
    changed = changed_rows(schema, batch.changes.slice(start))
    keys = rows_to_json(changed.keys)
    before, after = rows_to_json(changed.before), rows_to_json(changed.after)
    for index, kind in enumerate(changed.kinds):
        yield ViewChange(
            sequence=first + index,
            batch_id=batch.batch_id,
            kind=kind,
            key=keys[index],
            before=before[index] if changed.had_before[index] else None,
            after=after[index] if changed.has_after[index] else None,
        )
