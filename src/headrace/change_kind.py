"""Why a row of a result changed: what streams publish and views apply."""

from enum import IntEnum

__all__ = ["ChangeKind"]


class ChangeKind(IntEnum):
    """The `kind` column of changes."""

    CLOSE = 0
    UPDATE = 1
    CORRECTION = 2
    RETRACTION = 3
