"""How often a target takes a transaction, and how large it may be. Pure."""

from dataclasses import dataclass

__all__ = ["EAGER", "Pace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """At least `interval_s` between two transactions, each of about so many records and bytes.

    Where the source's transactions become visible at once, the larger of these and of what one of
    them has is the limit.
    """

    interval_s: float = 0.0
    most_records: int = 5_000
    most_bytes: int = 16 << 20


EAGER = Pace()
