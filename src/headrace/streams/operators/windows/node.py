"""Windows as a node of a dataflow: rows that other operators made, into changes of results."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.operators.grouping import one_chunk
from headrace.streams.operators.operator import WEIGHT, OperatorDefaults, OperatorStep, stamp_fields
from headrace.streams.operators.runs import Held
from headrace.streams.operators.windows.operator import DROPPED, LATE, WindowOperator
from headrace.streams.operators.windows.state import Advance
from headrace.streams.operators.windows.windows import Session, Sliding

__all__ = ["RECORD", "WindowNode"]

RECORD = ("_partition", "_offset")


@dataclass(frozen=True)
class WindowNode(OperatorDefaults):
    """A windowed aggregation over rows that are never taken back.

    A result of a sliding window is that of a row: it has the row's place in the log in its stamps, and a
    record has one row at most.
    """

    operator: WindowOperator

    @property
    def inputs(self) -> tuple[tuple[str, ...], ...]:
        return (self.operator.keys,)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that tell results apart; of sliding windows, stamps."""
        if self.is_sliding:
            return (*self.operator.keys, *RECORD)
        return (*self.operator.keys, "window_start", "window_end")

    @property
    def is_sliding(self) -> bool:
        return isinstance(self.operator.window, Sliding)

    @property
    def delay_us(self) -> int:
        """A result comes out when its window has ended, with the time of none of its rows."""
        window = self.operator.window
        return window.gap_us if isinstance(window, Session) else window.size_us

    def result(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        found = self.operator.result_schema(schemas[0])
        return pa.schema([each for each in found if each.name not in RECORD]) if self.is_sliding else found

    def dropped(self, number: int, rows: pa.Table) -> npt.NDArray[np.bool_] | None:  # noqa: ARG002
        """None: a row may be too late for some of its windows only, so the state decides."""
        return None

    def new_state(self, schemas: Sequence[pa.Schema]) -> "WindowNodeState":
        return WindowNodeState(self.operator, self.result(schemas))

    def describe(self) -> dict[str, Any]:
        return self.operator.describe()


class WindowNodeState:
    """The windows of one bucket of keys."""

    def __init__(self, operator: WindowOperator, schema: pa.Schema) -> None:
        self._operator = operator
        self._schema = schema
        self._state = operator.new_state()

    @property
    def row_count(self) -> int:
        return self._state.row_count

    def held(self) -> tuple[Held, ...]:
        return self._state.held()

    def advance(self, arrived: Sequence[pa.Table | None], watermarks: Sequence[int]) -> OperatorStep:
        rows, counts, aside = arrived[0], dict[str, int](), {}
        partials = []
        if rows is not None and rows.num_rows:
            rows = rows.combine_chunks()
            classes = self._operator.classify(rows)
            dropped = classes == DROPPED
            counts = {"dropped": int(dropped.sum()), "corrected": int((classes == LATE).sum())}
            if dropped.any():
                late = rows.filter(pa.array(dropped))
                aside = {0: late.append_column("_reason", pa.repeat(pa.scalar("late"), late.num_rows))}
            partials = [self._operator.partial(rows, classes)]
        found = self._state.advance(partials, watermarks[0])
        counts = _with_idle(counts, found)
        changes = None if found.changes is None else self._weighted(found.changes)
        return OperatorStep(
            changes=changes,
            delta=found.delta,
            counts={0: counts} if counts else {},
            aside=aside,
            unfit=found.unfit,
        )

    def snapshot(self) -> bytes:
        return self._state.snapshot()

    def replay(self, stored: bytes) -> None:
        self._state.replay(stored)

    def _weighted(self, changes: pa.Table) -> pa.Table | None:
        """What each change withdraws, and what it puts in its place."""
        changes = changes.combine_chunks()
        parts = [
            self._rows(changes.filter(pc.is_valid(changes[name])), name, weight)
            for name, weight in (("before", -1), ("after", 1))
        ]
        table = pa.concat_tables(parts)
        return table if table.num_rows else None

    def _rows(self, changes: pa.Table, name: str, weight: int) -> pa.Table:
        structs = one_chunk(changes[name])
        results = dict(zip([each.name for each in structs.type], structs.flatten(), strict=True))
        columns = []
        for each in self._schema:
            column = results[each.name] if each.name in results else one_chunk(changes[each.name])
            columns.append(column.cast(each.type))
        for each in stamp_fields():
            if each.name in RECORD and each.name in changes.column_names:
                columns.append(one_chunk(changes[each.name]))
                continue
            value = pa.scalar(weight, each.type) if each.name == WEIGHT else pa.scalar(None, each.type)
            columns.append(pa.repeat(value, changes.num_rows))
        return pa.Table.from_arrays(columns, schema=pa.schema([*self._schema, *stamp_fields()]))


def _with_idle(counts: Mapping[str, int], found: Advance) -> dict[str, int]:
    """The counts, with rows of partitions that had been idle: late after all, or without state."""
    counted = Counter(counts)
    counted["corrected"] += found.corrected_rows
    if found.dropped is not None:
        late, on_time = (pc.sum(found.dropped[name]).as_py() for name in ("_corrected", "_on_time"))
        counted.update(corrected=-late, dropped=late + on_time, forgotten=late + on_time)
    return {name: count for name, count in counted.items() if count}
