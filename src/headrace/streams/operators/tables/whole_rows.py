"""Changes of a table as whole rows: fields that a change left as they were have the value they had."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.streams.operators.hashing import distinct
from headrace.streams.operators.keys import hashes_of, of_keys
from headrace.streams.operators.operator import STAMPS, OperatorStep, encode_state
from headrace.streams.operators.tables.unchanged import UNCHANGED
from headrace.streams.operators.tables.upserts import Upserts, UpsertState

__all__ = ["WholeRows"]

_NEW = "_new"


@dataclass(frozen=True)
class WholeRows(Upserts):
    """Each change with its stamps, deletes among them, as a row of all its fields.

    Its state is the newest row of each key and partition.
    """

    def result(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        super().result(schemas)
        return pa.schema([each for each in schemas[0] if each.name not in (*STAMPS, UNCHANGED)])

    def new_state(self, schemas: Sequence[pa.Schema]) -> "WholeRowsState":
        return WholeRowsState(self, self.result(schemas))

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "operator": "whole rows"}


class WholeRowsState(UpsertState):
    """The newest row of each key of one bucket."""

    def advance(self, arrived: Sequence[pa.Table | None], watermarks: Sequence[int]) -> OperatorStep:
        rows, self._watermark_us = arrived[0], max(self._watermark_us, watermarks[0])
        if rows is None or not rows.num_rows:
            return OperatorStep(changes=None, delta=encode_state({}, {}))
        rows = self._hashed(rows)
        run = self._newest(rows)
        before = self._runs.find(distinct(hashes_of(run)))
        known = run.slice(0, 0) if before is None else of_keys(before, run, self._operator.key)
        whole = self._by_offset(
            pa.concat_tables([_flagged(known, is_new=False), _flagged(rows, is_new=True)]).combine_chunks()
        )
        self._runs.add(run)
        out = whole.filter(whole[_NEW]).select([*self._schema.names, *STAMPS])
        return OperatorStep(changes=out.combine_chunks(), delta=encode_state({"rows": run}, {}))


def _flagged(table: pa.Table, *, is_new: bool) -> pa.Table:
    return table.append_column(_NEW, pa.array(np.full(table.num_rows, is_new)))
