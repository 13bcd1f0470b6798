"""The state of an operator that holds nothing: each row is dealt with as it comes."""

from collections.abc import Callable, Sequence

import pyarrow as pa

from headrace.streams.operators.operator import OperatorStep, encode_state
from headrace.streams.operators.runs import Held

__all__ = ["Stateless"]

_NOTHING = encode_state({}, {})


class Stateless:
    """Puts out, step by step, what a function makes of what came."""

    def __init__(self, made: Callable[[Sequence[pa.Table | None]], pa.Table | None]) -> None:
        self._made = made

    @property
    def row_count(self) -> int:
        return 0

    def held(self) -> tuple[Held, ...]:
        return ()

    def advance(self, arrived: Sequence[pa.Table | None], watermarks: Sequence[int]) -> OperatorStep:  # noqa: ARG002
        changes = self._made(arrived)
        return OperatorStep(
            changes=changes if changes is not None and changes.num_rows else None, delta=_NOTHING
        )

    def snapshot(self) -> bytes:
        return _NOTHING

    def replay(self, stored: bytes) -> None:
        """There is nothing to take in."""
