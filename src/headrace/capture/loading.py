"""A first load between the source that reads it and the run that writes it. Pure.

Rows are written as they come, and a table that is whole is done. Before that, the state says nothing but how
many rows there are: if the load ends early, the table is read again from its beginning. A record
without a key cannot be replaced by a second one, so the rows of all tables without keys are *held*:
written in one transaction of the log, and until that has ended no position is kept either. A run that
ends before begins with another load.
"""

from collections.abc import Collection
from dataclasses import replace

from headrace.capture.change import Position
from headrace.capture.source import FirstLoad, LoadedRows
from headrace.capture.state import CaptureState

__all__ = ["TableLoad"]


class TableLoad:
    """The first load from `position` on, and which tables of it have to be written at once."""

    def __init__(self, load: FirstLoad, *, position: Position | None, keyless: Collection[str]) -> None:
        self._load, self._position = load, position
        self._held = set(keyless)
        self.read_us = load.read_us

    @property
    def is_held(self) -> bool:
        """Whether the transaction under way must not end yet."""
        return bool(self._held)

    @property
    def is_done(self) -> bool:
        return self._load.is_done

    def begun(self, state: CaptureState) -> CaptureState:
        """The state to be kept before the first row."""
        return replace(state, position=None) if self.is_held else state

    def next(self, wait_s: float) -> LoadedRows | None:
        """What was read next; None if nothing was within `wait_s`."""
        return self._load.next(wait_s)

    def advanced(self, state: CaptureState, read: LoadedRows, rows: int) -> CaptureState:
        """After so many of these rows were written."""
        if read.is_whole:
            self._held.discard(read.table)
        state = state.loaded(read.table, rows, is_whole=read.is_whole)
        return state if self.is_held else replace(state, position=self._position)

    def close(self) -> None:
        self._load.close()
