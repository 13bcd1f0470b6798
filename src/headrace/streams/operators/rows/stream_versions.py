"""The rows of a stream as versions of a table's: each is the row of its key from its own time on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import RequestError
from headrace.streams.operators.operator import DELETED, STAMPS, OperatorDefaults, own_fields
from headrace.streams.operators.rows.stateless import Stateless

__all__ = ["StreamVersions"]


@dataclass(frozen=True)
class StreamVersions(OperatorDefaults):
    """Rows that are never taken back, and none of which deletes another."""

    @property
    def inputs(self) -> tuple[None, ...]:
        return (None,)

    def result(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        fields = own_fields(schemas[0])
        if any(each.name == DELETED for each in fields):
            raise RequestError(f"column {DELETED!r} says of versions which are deletes; give it another name")
        return pa.schema([*fields, pa.field(DELETED, pa.bool_())])

    def new_state(self, schemas: Sequence[pa.Schema]) -> Stateless:
        names = self.result(schemas).names
        return Stateless(lambda arrived: _versions(arrived[0], names))

    def describe(self) -> dict[str, Any]:
        return {"operator": "stream versions", "version": 1}


def _versions(rows: pa.Table | None, names: Sequence[str]) -> pa.Table | None:
    if rows is None:
        return None
    return rows.append_column(DELETED, pa.array(np.zeros(rows.num_rows, np.bool_))).select([*names, *STAMPS])
