"""The words of a view's counters: what became of the records of its stream. Pure."""

from typing import Final

__all__ = ["BY_CLOCK", "HIDDEN", "OF_ROWS", "OF_STREAM", "READ", "SKIPPED"]

# Of records that became rows, which each view judges for itself.
OF_ROWS: Final = ("on_time", "corrected", "dropped", "filtered")
# Of the others, which are the same to all views of a stream.
OF_STREAM: Final = ("dead", "repeated", "declared")
# Every record that was read is one of these, once per view.
READ: Final = (*OF_ROWS, *OF_STREAM)
# Beside them, and no records: offsets that retention took before they were read, with on_gap="skip".
SKIPPED: Final = "skipped"
# Beside them too, of joins: rows of partitions that had been taken for idle, whose partners were gone,
# or some of them. What became of them depends on the clock, and not on the log alone.
BY_CLOCK: Final = ("forgotten", "incomplete")
# Rows of a table that are not shown, because another one has the view's key: how many there are now.
HIDDEN: Final = "hidden"
