"""Rows that a store cannot keep, and batches without them: no single row stops a view. Pure.

A type of a database may hold less than the column's own: PostgreSQL's text has no U+0000. Such a
row is set aside before its batch is applied. A row that was shown under its key is removed, since
readers rather see none than an outdated one.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headrace.change_kind import ChangeKind
from headrace.views.batch import changed_rows
from headrace.views.schema import ViewSchema

__all__ = ["LimitedStore", "without_misfits"]


class LimitedStore:
    """A store that cannot keep every row, or something that writes to one."""

    def misfits(self, rows: pa.Table, key: Sequence[str]) -> pa.Array | None:
        """For each row why it cannot be kept, null where it can; None if all can.

        `rows` may have the columns of the key alone.
        """
        raise NotImplementedError


def without_misfits(
    store: object, schema: ViewSchema, changes: pa.Table | None
) -> tuple[pa.Table | None, pa.Table | None]:
    """The changes as the store can keep them, and the rows set aside; None where there are none.

    Of those there are the columns of their keys, and `_reason`.
    """
    if not isinstance(store, LimitedStore) or changes is None or not changes.num_rows:
        return changes, None
    rows = changed_rows(schema, changes)
    of_keys, of_rows = store.misfits(rows.keys, schema.key), store.misfits(rows.after, schema.key)
    if of_keys is None and of_rows is None:
        return changes, None
    count = changes.num_rows
    key_causes = pa.nulls(count, pa.string()) if of_keys is None else of_keys
    causes = pc.coalesce(key_causes, pa.nulls(count, pa.string()) if of_rows is None else of_rows)
    is_aside = pc.and_(pc.is_valid(causes), pa.array(rows.has_after))
    aside = rows.keys.append_column("_reason", causes).filter(is_aside)
    changes = _removing(_with_keys(changes, rows.keys), is_aside)
    return changes.filter(pc.is_null(key_causes)), aside if aside.num_rows else None


def _with_keys(changes: pa.Table, keys: pa.Table) -> pa.Table:
    """The same with the key beside each change, where it is found once the row is gone."""
    for name in keys.column_names:
        if name in changes.column_names:
            changes = changes.drop_columns([name])
        changes = changes.append_column(name, keys[name])
    return changes


def _removing(changes: pa.Table, chosen: pa.Array) -> pa.Table:
    """The same changes, of which those chosen remove the row of their key."""
    kind = changes["kind"].type
    kinds = pc.if_else(chosen, pa.scalar(int(ChangeKind.RETRACTION), kind), changes["kind"])
    after = changes["after"].combine_chunks()
    none = pc.if_else(chosen, pa.scalar(None, after.type), after)
    names = changes.column_names
    changes = changes.set_column(names.index("kind"), "kind", kinds)
    return changes.set_column(names.index("after"), "after", none)
