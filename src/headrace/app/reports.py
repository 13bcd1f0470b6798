"""What is told of a batch to whoever watches."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

__all__ = ["BatchReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """One batch, for whoever watches: what was read, and what each view counted and changed."""

    query: str
    batch_id: int
    records: int
    watermark_us: int | None
    following: Mapping[int, int]
    books: Mapping[str, Mapping[str, int]]
    changed: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a line of output."""
        books = {view: dict(counts) for view, counts in self.books.items()}  # `asdict` spoils a Counter
        return asdict(replace(self, books=books))
