"""The words of a view's books: what became of the records of its stream. Pure."""

from typing import Final

__all__ = ["OF_ROWS", "OF_STREAM", "READ", "SKIPPED"]

# Of records that became rows, which each view judges for itself.
OF_ROWS: Final = ("on_time", "corrected", "dropped", "filtered")
# Of the others, which are the same to all views of a stream.
OF_STREAM: Final = ("dead", "repeated", "declared")
# Every record that was read is one of these, once per view.
READ: Final = (*OF_ROWS, *OF_STREAM)
# Beside them, and no records: offsets that retention took before they were read, with on_gap="skip".
SKIPPED: Final = "skipped"
