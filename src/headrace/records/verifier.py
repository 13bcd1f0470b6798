"""Verifies batches as their bytes stream past in chunks of any size."""

from headrace.errors import CorruptionError
from headrace.kernels import (
    WRONG_SUM,
    Check,
    SendDescriptors,
    SendOutcome,
    SendProgress,
    SendWindow,
    Walk,
    check_bytes,
    send_checked,
)

__all__ = ["BatchVerifier"]


class BatchVerifier:
    """Checks consecutive bytes of a segment, batch by batch, without keeping them.

    Besides the CRC it checks what the CRC does not cover: magic, leader epoch, and
    that each base offset is the one the previous batch leaves (at least that one
    with `gaps`, as compaction leaves them). A batch cut off at the end is not an
    error: its reader discards it.

    `position` is where the batch being checked begins, `next_offset` the offset
    expected there; after a failed check they tell what is damaged.
    """

    __slots__ = ("_check",)

    def __init__(self, *, next_offset: int, position: int = 0, gaps: bool = False) -> None:
        self._check = Check(Walk(next_offset=next_offset, gaps=gaps), position=position)

    @property
    def position(self) -> int:
        return self._check.position

    @property
    def next_offset(self) -> int:
        return self._check.walk.next_offset

    def feed(self, chunk: bytes | bytearray | memoryview) -> None:
        """Takes the next bytes; raises CorruptionError at the first batch that fails."""
        if check_bytes(chunk, self._check):
            self._fail()

    def send(
        self, route: SendDescriptors, window: SendWindow, filled: int, most: int, sending: SendProgress
    ) -> SendOutcome:
        """Takes the next bytes from a file and sends them (`kernels.batches.send_checked`)."""
        outcome = send_checked(route, window, filled, most, self._check, sending)
        if outcome is SendOutcome.HAS_A_FAULT:
            self._fail()
        return outcome

    def _fail(self) -> None:
        wrong_sum = self._check.walk.fault == WRONG_SUM
        fault = "fails its CRC" if wrong_sum else "is not a record batch in its place"
        raise CorruptionError(
            f"what should be the batch at offset {self.next_offset} {fault}", start=self.position
        )
