"""What an operator of a dataflow is: rows and changes in, changes out, one bucket of keys at a time.

Between operators flow *changes*: Arrow tables of rows with a weight, +1 for a row that is now
there and -1 for one that no longer is; an update is both. A stream is a table that only gains
rows. Beside the columns of a row stand its stamps:

    _partition int32, _offset int64     the record that the row was made from
    _event_time int64 µs                when it happened; of a table's row, from when it is valid
    _watermark int64 µs, or null        what its partition's watermark was before it
    _weight int64                       how many of this row there are more (or fewer)

A row that an operator makes of several carries the stamps of the one that drives it: the
stream's in a join with a table, the left one's in a join of two streams. Stamps of rows that
belong to a table, and not to a stream, mean nothing and are null.

The law that every operator keeps: the sum of all changes it has put out equals its batch
definition over the sum of all changes it was given. How rows were cut into batches, in which
order the inputs came, restarts in between: none of it shows in that sum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import CorruptionError
from headrace.streams.operators.grouping import Ints, one_chunk
from headrace.streams.operators.runs import Held

__all__ = [
    "DELETED",
    "STAMPS",
    "WEIGHT",
    "Operator",
    "OperatorDefaults",
    "OperatorStep",
    "State",
    "decode_state",
    "encode_state",
    "own_columns",
    "own_fields",
    "stamp_fields",
]

WEIGHT = "_weight"
DELETED = "_deleted"  # of a table's upserts and versions: whether the row goes
STAMPS = ("_partition", "_offset", "_event_time", "_watermark", WEIGHT)
_TYPES = (pa.int32(), pa.int64(), pa.int64(), pa.int64(), pa.int64())
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
_VERSION = b"headrace.operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorStep:
    """What one step of a state did.

    `changes` are rows of the operator's result with their stamps. `delta` replays the step.
    `counts` says, by input, what became of rows that are counted: {"dropped": 3} and the like;
    beside them, of rows whose partition had been taken for idle, how many found their state gone
    ("forgotten") or a part of it ("incomplete"), which is a matter of the clock and not of the log.
    `aside` are rows of an input that were not taken, with the reason in `_reason`, by input.
    `unfit` are results that should be there and do not fit their type, so that there is none: their
    keys (of windows `_window_start` and `_window_end` as well) and the `_error`.
    """

    changes: pa.Table | None
    delta: bytes
    counts: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    aside: Mapping[int, pa.Table] = field(default_factory=dict)
    unfit: pa.Table | None = None


class State(Protocol):
    """One bucket of an operator's keys. One user at a time; a step that raises leaves it undefined."""

    @property
    def row_count(self) -> int:
        """Rows held."""
        ...

    def held(self) -> tuple[Held, ...]:
        """What is held of each input, or of all together; nothing of an operator that holds nothing."""
        ...

    def advance(self, arrived: Sequence[pa.Table | None], watermarks: Sequence[int]) -> OperatorStep:
        """Takes in what came by each input, then moves each input's watermark, and says what changed.

        Watermarks never go back: the caller sees to that.
        """
        ...

    def snapshot(self) -> bytes:
        """Everything held, as one blob that `replay` takes on a new state."""
        ...

    def replay(self, stored: bytes) -> None:
        """Takes in a snapshot, or the delta of a step, quietly."""
        ...


class Operator(Protocol):
    """A frozen description of one node of a dataflow that has state.

    `inputs` has, for each input, the columns by whose values rows are brought together: rows
    with equal values meet in one bucket. None: rows are taken wherever they are.
    """

    @property
    def inputs(self) -> tuple[tuple[str, ...] | None, ...]: ...

    @property
    def delay_us(self) -> int:
        """How far behind its inputs' watermarks the event time of what comes out may be."""
        ...

    @property
    def placed_by(self) -> tuple[tuple[str, ...], ...]:
        """By which columns what comes out is in its bucket: as rows are that are brought together by these.

        Names that are no columns of the result say nothing. Where rows are taken wherever they are, they
        stay there, and nothing needs to be said.
        """
        ...

    def result(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        """The columns of what comes out, stamps aside; refuses what does not fit the inputs' columns."""
        ...

    def dropped(self, number: int, rows: pa.Table) -> npt.NDArray[np.bool_] | None:
        """Which rows of an input come too late to be taken, by their stamps alone; None: all are taken.

        Such rows are set aside where they are read, and never reach a state.
        """
        ...

    def new_state(self, schemas: Sequence[pa.Schema]) -> State:
        """A state that has seen nothing; `schemas` are those of the inputs, stamps aside."""
        ...

    def describe(self) -> dict[str, Any]:
        """Plain values that say what it computes, with the version of its stored state.

        Two operators can take up each other's state exactly if they describe themselves alike.
        """
        ...


class OperatorDefaults:
    """What most operators answer: nothing waits, nothing is too late, key columns come out as they came."""

    __slots__ = ()

    @property
    def delay_us(self) -> int:
        return 0

    @property
    def placed_by(self: "Operator") -> tuple[tuple[str, ...], ...]:
        return tuple(key for key in self.inputs if key is not None)

    def dropped(self, number: int, rows: pa.Table) -> npt.NDArray[np.bool_] | None:  # noqa: ARG002
        return None


def stamp_fields() -> list[pa.Field]:
    """The stamps' fields, in their order."""
    return [pa.field(name, kind) for name, kind in zip(STAMPS, _TYPES, strict=True)]


def own_fields(schema: pa.Schema) -> list[pa.Field]:
    """The fields of a row without its stamps."""
    return [each for each in schema if each.name not in STAMPS]


def own_columns(table: pa.Table) -> list[str]:
    """The names of a row's columns without its stamps."""
    return [name for name in table.column_names if name not in STAMPS]


def numbers(table: pa.Table, name: str) -> Ints:
    """An int64 column as numpy."""
    return np.asarray(one_chunk(table[name]).to_numpy())


def encode_state(parts: Mapping[str, pa.Table | None], about: Mapping[str, int]) -> bytes:
    """Named tables and numbers as one blob: a version, then each table as a compressed Arrow stream."""
    kept = {name: table for name, table in parts.items() if table is not None and table.num_rows}
    return _encoded(kept, about) if kept or about else _nothing()


@cache
def _nothing() -> bytes:
    """What a step that took in nothing leaves, which most steps of quiet buckets do."""
    return _encoded({}, {})


def _encoded(kept: Mapping[str, pa.Table], about: Mapping[str, int]) -> bytes:
    sink = pa.BufferOutputStream()
    schema = pa.schema(
        [("name", pa.string()), ("table", pa.large_binary())],
        metadata={_VERSION: b"1", **{name.encode(): b"%d" % value for name, value in about.items()}},
    )
    rows = pa.table([list(kept), [_stream(each) for each in kept.values()]], schema=schema)
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue().to_pybytes())


def decode_state(stored: bytes) -> tuple[dict[str, pa.Table], dict[str, int]]:
    """What `encode_state` wrote; tables without rows are not there."""
    try:
        with pa.ipc.open_stream(stored) as reader:
            rows = reader.read_all()
        metadata = dict(rows.schema.metadata or {})
        if metadata.pop(_VERSION, None) != b"1":
            raise CorruptionError("stored state is of another version; rebuild the view from the log")
        tables = {
            name: pa.ipc.open_stream(blob.as_buffer()).read_all()
            for name, blob in zip(rows["name"].to_pylist(), rows["table"], strict=True)
        }
    except (pa.ArrowInvalid, OSError, KeyError) as error:
        raise CorruptionError(f"stored state cannot be read: {error}") from error
    return tables, {name.decode(): int(value) for name, value in metadata.items()}


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_LZ4) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue().to_pybytes())
