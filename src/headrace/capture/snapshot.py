"""A chunk of a snapshot between being read and being written: changes in between win. Pure."""

from collections.abc import Collection, Iterator, Sequence

import orjson

from headrace.capture.change import Change, Position, RowBlock, Transaction
from headrace.capture.source import Chunk

__all__ = ["PendingChunk"]


class PendingChunk:
    """The rows of a chunk that no later change has replaced."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self._rows: dict[bytes, Change] | Sequence[Change] = ()
        self.block: RowBlock | None = None  # all rows, as long as none had to be looked at
        if isinstance(chunk.rows, RowBlock):
            self.block = chunk.rows
        else:
            self._keep(chunk.rows)
        self._dropping = False
        self.spoilt = False  # the table's columns have changed: it has to be read again

    def _keep(self, rows: Sequence[Change]) -> None:
        keyed = all(each.key is not None for each in rows)
        self._rows = {each.key: each for each in rows if each.key is not None} if keyed else rows

    def begin(self, transaction: Transaction) -> None:
        """Changes from here on belong to this transaction."""
        self._dropping = not self.chunk.sees(transaction)

    def note(self, change: Change) -> Change:
        """Drops the row that this change replaces, if the chunk was read before it.

        The change to write: with the values of that row that the source did not send again, for
        nobody else has them.
        """
        if not self._dropping or change.table != self.chunk.table:
            return change
        self._open_block()
        if change.op == "t":
            self._rows = {}
        elif change.key is not None and isinstance(self._rows, dict):
            replaced = self._rows.pop(change.key, None)
            if replaced is not None and change.unchanged:
                return _completed(change, replaced)
        else:
            self.spoilt = True  # rows without a key cannot be distinguished
        return change

    def looks_at(self, tables: Collection[str]) -> bool:
        """Whether changes of one of these tables, in the transaction that has begun, may replace rows."""
        return self._dropping and self.chunk.table in tables

    def _open_block(self) -> None:
        block, self.block = self.block, None
        if block is not None:
            self._keep(list(block.rows()))

    def is_reached(self, position: Position | None) -> bool:
        """Whether no change that the chunk already contains can still arrive."""
        return position is not None and self.chunk.reached(position)

    def rows(self) -> Iterator[Change]:
        """What is left to write."""
        self._open_block()
        yield from self._rows.values() if isinstance(self._rows, dict) else self._rows


def _completed(change: Change, row: Change) -> Change:
    """The change with what it leaves as it was, which is what the row has."""
    after, before = orjson.loads(change.after or b"{}"), orjson.loads(row.after or b"{}")
    kept = {name: before[name] for name in change.unchanged if name in before}
    missing = tuple(name for name in change.unchanged if name not in before)
    return change._replace(after=orjson.dumps({**after, **kept}), unchanged=missing)
