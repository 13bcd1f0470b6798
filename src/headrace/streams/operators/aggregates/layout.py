"""The columns of partial results and of state, for one operator and one schema of rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.errors import RequestError
from headrace.streams.operators.aggregates.aggregates import Aggregate, Kept, Sum
from headrace.streams.operators.aggregates.cells import Cell
from headrace.streams.operators.grouping import Groups, one_chunk
from headrace.streams.operators.hashing import normal_type
from headrace.streams.operators.keys import HASH

__all__ = ["CORRECTED", "FROM", "INSTANT", "ON_TIME", "Layout", "layout_for", "layout_of"]

ON_TIME, CORRECTED = "_on_time", "_corrected"
FROM = "_from"  # rows count in windows that end here or later: those before had ended when they came
INSTANT = pa.timestamp("us", "UTC")
_INPUTS = b"headrace.inputs"


@dataclass(frozen=True)
class Layout:
    """Keys, the columns that place a row in time, counts of rows, then the columns of each cell."""

    keys: tuple[str, ...]
    places: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]
    cells: tuple[Cell, ...]
    inputs: pa.Schema

    @property
    def key_fields(self) -> list[pa.Field]:
        return [self.inputs.field(name) for name in self.keys]

    @property
    def event(self) -> tuple[str, ...]:
        """The columns that tell one event's result from another's, where each has its own."""
        return tuple(name for name in self.places if name in ("_partition", "_offset"))

    @property
    def result_fields(self) -> list[pa.Field]:
        return [pa.field(name, each.result_type(self.inputs)) for name, each in self.aggregates]

    @property
    def result_struct(self) -> pa.DataType:
        return pa.struct(self.result_fields)

    def cell_columns(self, number: int) -> list[str]:
        return [f"#{number}.{name}" for name, _ in self.cells[number].columns(self.inputs)]

    def table(
        self,
        keys: Sequence[pa.Array],
        hashes: pa.Array,
        places: Sequence[pa.Array],
        counts: Sequence[pa.Array],
        cells: Sequence[Sequence[pa.Array]],
    ) -> pa.Table:
        names = [*self.keys, HASH, *self.places, ON_TIME, CORRECTED]
        columns = [*keys, hashes, *places, *counts]
        for number, parts in enumerate(cells):
            names += self.cell_columns(number)
            columns += parts
        return pa.table(columns, names=names).replace_schema_metadata(
            {_INPUTS: self.inputs.serialize().to_pybytes()}
        )

    def partial_cells(self, rows: pa.Table, groups: Groups) -> list[list[pa.Array]]:
        return [cell.partial(rows, groups) for cell in self.cells]

    def merged_cells(self, table: pa.Table, groups: Groups) -> list[list[pa.Array]]:
        """One row per group of the table's rows; the table is in the groups' order."""
        return [
            cell.merge([one_chunk(table[name]) for name in self.cell_columns(number)], groups)
            for number, cell in enumerate(self.cells)
        ]

    def merged(self, table: pa.Table, groups: Groups, places: Sequence[pa.Array]) -> pa.Table:
        """The table with one row per group."""
        if groups.count == table.num_rows and groups.starts is not None:  # nothing to merge
            for name, column in zip(self.places, places, strict=True):
                table = table.set_column(table.column_names.index(name), name, column)
            return table
        first = pa.array(groups.representatives)
        counts = [pa.array(groups.sum(one_chunk(table[name]).to_numpy())) for name in (ON_TIME, CORRECTED)]
        keys = [one_chunk(table[name]).take(first) for name in self.keys]
        hashes = one_chunk(table[HASH]).take(first)
        return self.table(keys, hashes, places, counts, self.merged_cells(table, groups))

    def finished(self, table: pa.Table) -> pa.StructArray:
        """The results of a table of state, one per row; null where one does not fit its type."""
        kept = list(self._kept(table))
        results = [aggregate.finish(each) for _, aggregate, each in kept]
        unfit = np.zeros(table.num_rows, np.bool_)
        for (_, aggregate, each), result in zip(kept, results, strict=True):
            if isinstance(aggregate, Sum) and result.null_count:
                unfit[list(aggregate.unfit(each))] = True
        mask = pa.array(unfit) if unfit.any() else None
        return pa.StructArray.from_arrays(results, fields=self.result_fields, mask=mask)

    def unfit(self, table: pa.Table) -> dict[int, str]:
        """Why rows of a table of state have no result, by row."""
        reasons: dict[int, list[str]] = {}
        for name, aggregate, kept in self._kept(table):
            if isinstance(aggregate, Sum):
                kind = aggregate.result_type(self.inputs)
                for row, total in aggregate.unfit(kept).items():
                    reasons.setdefault(row, []).append(f"{name} is {total}, which does not fit {kind}")
        return {row: "; ".join(each) for row, each in sorted(reasons.items())}

    def _kept(self, table: pa.Table) -> Iterator[tuple[str, Aggregate, Kept]]:
        rows = pa.compute.add(one_chunk(table[ON_TIME]), one_chunk(table[CORRECTED]))
        number = {cell: each for each, cell in enumerate(self.cells)}
        for name, aggregate in self.aggregates:
            parts = [
                [one_chunk(table[column]) for column in self.cell_columns(number[cell])]
                for cell in aggregate.cells()
            ]
            yield name, aggregate, Kept(parts, rows, self.inputs)


def layout_for(
    keys: tuple[str, ...],
    places: tuple[str, ...],
    aggregates: tuple[tuple[str, Aggregate], ...],
    schema: pa.Schema,
) -> Layout:
    """The layout for rows of this schema; refuses what does not fit it."""
    for name in keys:
        if schema.get_field_index(name) < 0:
            raise RequestError(
                f"there is no key column {name!r}; there are {', '.join(map(repr, schema.names))}"
            )
    for _, aggregate in aggregates:
        aggregate.result_type(schema)
    key_fields = [pa.field(name, normal_type(schema.field(name).type, name)) for name in keys]
    read = dict.fromkeys(column for _, each in aggregates for column in each.columns())
    others = [schema.field(name).remove_metadata() for name in read if name not in keys]
    cells = tuple(dict.fromkeys(cell for _, each in aggregates for cell in each.cells()))
    return Layout(keys, places, aggregates, cells, pa.schema([*key_fields, *others]))


def layout_of(
    keys: tuple[str, ...],
    places: tuple[str, ...],
    aggregates: tuple[tuple[str, Aggregate], ...],
    table: pa.Table,
) -> Layout:
    """The layout of a partial result or of state, which carries the schema of its rows."""
    inputs = pa.ipc.read_schema(pa.py_buffer(table.schema.metadata[_INPUTS]))
    return layout_for(keys, places, aggregates, inputs)
