"""The report of one batch: to the status file, alerts and the output of `headrace run`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

__all__ = ["BatchReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """One completed batch: what was read, and what each view counted and changed.

    `following` are the next offsets by partition; of a query over several topics by "topic/partition".
    `inputs` is what views over several topics counted of each input.
    """

    query: str
    batch_id: int
    records: int
    watermark_us: int | None
    following: Mapping[int, int] | Mapping[str, int]
    counters: Mapping[str, Mapping[str, int]]
    changed: Mapping[str, int]
    inputs: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a line of output."""
        counters = {view: dict(counts) for view, counts in self.counters.items()}  # `asdict` spoils a Counter
        inputs = {
            view: {name: dict(counts) for name, counts in each.items()} for view, each in self.inputs.items()
        }
        return asdict(replace(self, counters=counters, inputs=inputs))
