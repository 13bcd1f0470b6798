"""What states of one input have in common whose rows are held in runs."""

from collections.abc import Sequence

import pyarrow as pa

from headrace.streams.operators.hashing import distinct
from headrace.streams.operators.keys import hashes_of
from headrace.streams.operators.operator import OperatorStep, decode_state, encode_state
from headrace.streams.operators.runs import Held, Runs

__all__ = ["RunState"]


class RunState:
    """One bucket of keys. What arrives in a step becomes a run; what it changes are its keys' results.

    A delta is the run, a snapshot all of them as one.
    """

    stored_as = "rows"

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    @property
    def row_count(self) -> int:
        return self._runs.row_count

    def held(self) -> tuple[Held, ...]:
        return (self._runs.held(),)

    def advance(self, arrived: Sequence[pa.Table | None], watermarks: Sequence[int]) -> OperatorStep:  # noqa: ARG002
        rows = arrived[0]
        if rows is None or not rows.num_rows:
            return OperatorStep(changes=None, delta=encode_state({}, {}))
        run = self._run(rows.combine_chunks())
        before = self._runs.find(distinct(hashes_of(run)))
        self._runs.add(run)
        return self._step(before, run)

    def snapshot(self) -> bytes:
        self._reduce()
        return self._encoded(self._runs.merged())

    def replay(self, stored: bytes) -> None:
        tables, _ = decode_state(stored)
        if self.stored_as in tables:
            self._runs.add(self._decoded(tables[self.stored_as]))

    def _run(self, rows: pa.Table) -> pa.Table:
        """Rows as a run: with the hashes of their keys, in that order."""
        raise NotImplementedError

    def _step(self, before: pa.Table | None, run: pa.Table) -> OperatorStep:
        """What a run changes; `before` are the rows that there were with its hashes."""
        raise NotImplementedError

    def _reduce(self) -> None:
        """Lets go of rows of which nothing is left to be known."""

    def _encoded(self, run: pa.Table | None) -> bytes:
        return encode_state({self.stored_as: run}, {})

    def _decoded(self, run: pa.Table) -> pa.Table:
        return run
