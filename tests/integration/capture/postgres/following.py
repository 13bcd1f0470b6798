"""A source followed in memory, as `CaptureRun` follows it: tables folded from its changes."""

import time
from dataclasses import dataclass, field
from typing import Any

import orjson

from headrace.capture.change import (
    Change,
    ChangeBlock,
    EncodedChanges,
    Resnapshot,
    RowBlock,
    TableSchema,
    Transaction,
)
from headrace.capture.envelope import Envelope
from headrace.capture.snapshot import PendingChunk
from headrace.capture.source import Source
from headrace.capture.state import CaptureState
from headrace.client.write import RecordBlock

NOW_MS = 1_700_000_000_000


@dataclass
class Folded:
    """What a reader of the topics would have; `log` is every change in its order."""

    state: CaptureState = field(default_factory=CaptureState)
    tables: dict[str, dict[bytes, dict[str, Any]]] = field(default_factory=dict)
    schemas: dict[str, TableSchema] = field(default_factory=dict)
    log: list[Change] = field(default_factory=list)
    resnapshots: list[Resnapshot] = field(default_factory=list)

    def apply(self, change: Change) -> None:
        self.log.append(change)
        rows = self.tables.setdefault(change.table, {})
        if change.op == "t":
            rows.clear()
        elif change.op == "d":
            rows.pop(change.key, None)
        elif change.key is not None:
            after = orjson.loads(change.after)
            kept = rows.get(change.key, {})
            rows[change.key] = after | {name: kept[name] for name in change.unchanged if name in kept}


def _envelope(transaction: Transaction) -> Envelope:
    envelope = Envelope(connector="postgresql", name="shop", database="shop", version="1")
    envelope.begin(transaction.id, transaction.committed_us)
    return envelope


class Follower:
    """One run over a source; everything that must survive it is in `folded`."""

    def __init__(self, source: Source, folded: Folded, *, chunk_rows: int = 100) -> None:
        self.source, self.folded, self._chunk_rows = source, folded, chunk_rows
        self._pending: PendingChunk | None = None
        state = folded.state
        position = source.connect(state.position)
        schemas = source.schemas()
        folded.schemas.update(schemas)
        from dataclasses import replace

        folded.state = replace(state, position=position).with_tables(schemas, ())

    def round(self, wait_s: float = 0.1) -> bool:
        """One round; whether anything came."""
        if self._pending is None:
            self._pending = self._read()
        came = False
        for transaction in self.source.transactions(wait_s):
            came = True
            if self._pending is not None:
                self._pending.begin(transaction)
            self._envelopes = tuple(_envelope(transaction) for _ in range(2))
            for item in transaction.changes:
                for each in self._agreed(item) if isinstance(item, ChangeBlock) else (item,):
                    self._take(each)
            self._advance(transaction.position)
            if self._write_chunk():
                break
        self._write_chunk()
        self.source.acknowledge(self.folded.state.position)
        return came

    def _agreed(self, block: ChangeBlock) -> list:
        """The items of a block, whose records are the same bytes however they are encoded."""
        ours, kernels = self._envelopes
        items, records = list(block.changes()), []
        for each in block.encoded(kernels, NOW_MS):
            if isinstance(each, EncodedChanges):
                block_of = RecordBlock(each.octets, each.numbers, each.count, each.tables, 0)
                records += [(each.topic, each.key, each.value) for each in block_of.records() if each.value]
            elif isinstance(each, Change):
                records.append((each.table, each.key, kernels.value(each, NOW_MS)))
        changes = [each for each in items if isinstance(each, Change)]
        assert records == [(each.table, each.key, ours.value(each, NOW_MS)) for each in changes]
        return items

    def _checked_rows(self, block: RowBlock) -> list[Change]:
        """The rows of a snapshot, which are the same bytes however they are encoded, too."""
        rows = list(block.rows())
        envelope = Envelope(connector="postgresql", name="shop", database="shop", version="1")
        records = []
        for each in block.encoded(envelope, 5_000, NOW_MS):
            if isinstance(each, EncodedChanges):
                block_of = RecordBlock(each.octets, each.numbers, each.count, each.tables, 0)
                records += [(each.topic, each.key, each.value) for each in block_of.records()]
            else:
                records.append((each.table, each.key, envelope.snapshot_value(each, 5_000, NOW_MS)))
        assert records == [
            (each.table, each.key, envelope.snapshot_value(each, 5_000, NOW_MS)) for each in rows
        ]
        return rows

    def _take(self, item) -> None:
        if isinstance(item, Change):
            if self._pending is not None:
                item = self._pending.note(item)
            self.folded.apply(item)
            return
        if self._pending is not None and self._pending.chunk.table == item.table:
            self._pending.spoilt = True
        if isinstance(item, TableSchema):
            self.folded.schemas[item.table] = item
            tables = [*self.folded.state.tables]
            if item.table not in tables:
                self.folded.state = self.folded.state.with_tables([*tables, item.table], ())
        else:
            self.folded.resnapshots.append(item)
            self.folded.state = self.folded.state.resnapshot([item.table])

    def _advance(self, position) -> None:
        from dataclasses import replace

        self.folded.state = replace(self.folded.state, position=orjson.loads(orjson.dumps(position)))

    def _read(self) -> PendingChunk | None:
        table = self.folded.state.next_snapshot()
        if table is None:
            return None
        progress = self.folded.state.tables[table]
        if progress.phase == "gone":
            keys = sorted(self.folded.tables.get(table, {}))
            return PendingChunk(self.source.read_keys(table, keys))
        return PendingChunk(self.source.read_chunk(table, progress.cursor, self._chunk_rows))

    def _write_chunk(self) -> bool:
        pending = self._pending
        if pending is None or not pending.is_reached(self.folded.state.position):
            return False
        self._pending = None
        if pending.spoilt:
            return True
        rows = pending.rows() if pending.block is None else self._checked_rows(pending.block)
        count = 0
        for row in rows:
            self.folded.apply(row)
            count += 1
        self.folded.state = self.folded.state.advanced(pending.chunk.table, pending.chunk.cursor, count)
        return True

    def settle(self, lsn: int, timeout_s: float = 60) -> None:
        """Follows until snapshots are done and everything before `lsn` was read."""
        until = time.monotonic() + timeout_s
        while self.folded.state.next_snapshot() or self.folded.state.position["lsn"] < lsn:
            session = self.source._open()
            session._awaited_lsn = max(session._awaited_lsn, lsn)
            self.round(0.05)
            assert time.monotonic() < until, "the source did not come to an end"
