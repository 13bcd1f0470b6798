"""The changes of a batch as records that are kept for followers of a view. Pure."""

from collections.abc import Iterator

from headrace.views.batch import ViewBatch, changed_rows
from headrace.views.json_values import rows_to_json
from headrace.views.schema import ViewSchema
from headrace.views.store import Change

__all__ = ["kept_changes"]


def kept_changes(schema: ViewSchema, batch: ViewBatch, sequence: int) -> tuple[list[Change], int]:
    """Those of a batch that will be kept, numbered from `sequence` + 1, and the last number.

    Changes that the view's bound would drop at once are numbered and never built.
    """
    total = 0 if batch.changes is None else batch.changes.num_rows
    kept = min(total, schema.keep_changes)
    if kept == 0 or batch.changes is None:
        return [], sequence + total
    first = sequence + total - kept + 1
    return list(_changes(schema, batch, total - kept, first)), sequence + total


def _changes(schema: ViewSchema, batch: ViewBatch, start: int, first: int) -> Iterator[Change]:
    assert batch.changes is not None
    changed = changed_rows(schema, batch.changes.slice(start))
    keys = rows_to_json(changed.keys)
    before, after = rows_to_json(changed.before), rows_to_json(changed.after)
    for index, kind in enumerate(changed.kinds):
        yield Change(
            sequence=first + index,
            batch_id=batch.batch_id,
            kind=kind,
            key=keys[index],
            before=before[index] if changed.had_before[index] else None,
            after=after[index] if changed.has_after[index] else None,
        )
