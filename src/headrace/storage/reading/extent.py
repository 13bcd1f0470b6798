"""A stretch of one segment, read and verified piece by piece."""

import os
from typing import TYPE_CHECKING

from headrace.errors import CorruptionError, DiskError
from headrace.kernels import SendDescriptors, SendOutcome, SendProgress, SendWindow
from headrace.records import BatchVerifier

if TYPE_CHECKING:
    from headrace.storage.disk import Damage
    from headrace.storage.reading.reader import PartitionReader
    from headrace.storage.segments import Segment

__all__ = ["Extent"]

_READ_BYTES = 1024 * 1024


class Extent:
    """Bytes of consecutive batches in one segment, beginning with a whole batch.

    The last batch may be cut off by the size asked for, as in Kafka, unless it is
    known where it begins; the first is always whole. The segment's file stays open and
    readable until `release`, even if retention removes it meanwhile. One thread at a time.
    """

    __slots__ = (
        "_base_offset",
        "_cut",
        "_end",
        "_fd",
        "_position",
        "_reader",
        "_released",
        "_segment",
        "_start",
        "_verifier",
        "size_bytes",
    )

    def __init__(
        self,
        reader: "PartitionReader",
        segment: "Segment",
        fd: int,
        *,
        position: int,
        size_bytes: int,
        base_offset: int,
        cut: bool,
    ) -> None:
        self.size_bytes = size_bytes
        self._reader = reader
        self._segment = segment
        self._fd = fd
        self._position = self._start = position
        self._base_offset = base_offset
        self._released = False
        self._cut = cut  # the size asked for may end in the midst of a batch
        self._verifier = BatchVerifier(next_offset=base_offset, position=position, gaps=segment.compacted)
        self._end = position + size_bytes

    @property
    def bytes_read(self) -> int:
        """Bytes that were returned, or sent, so far."""
        return self._position - self._start

    @property
    def offsets_read(self) -> int:
        """Offsets of the batches that were returned whole so far, gaps between them included."""
        return self._verifier.next_offset - self._base_offset

    def read_chunk(self, max_bytes: int, *, wait: bool = True) -> bytes | bytearray | None:
        """The next verified bytes, empty at the end; None if the disk would have to be waited for.

        Raises CorruptionError at the first batch that fails its check, after
        recording the damage in the log: the bytes of that batch in this chunk are
        not returned, and a caller that passed on earlier ones must break off. DiskError
        if the disk cannot read.
        """
        size = min(max_bytes, self._end - self._position)
        if size <= 0:
            return b""
        disk = self._reader.files.disk
        read = disk.pread if wait else disk.pread_nowait
        try:
            chunk = read(self._fd, size, self._position)
        except OSError as error:
            raise self._unreadable(error) from error
        if chunk is not None:
            self._verify(chunk)
        return chunk

    def read_into(self, room: memoryview) -> int | None:
        """As `read_chunk` without waiting, into memory that is there and writable; how many bytes.

        What is left there after an error is anything.
        """
        room = room[: self._end - self._position]
        if not room:
            return 0
        try:
            count = self._reader.files.disk.pread_into(self._fd, room, self._position)
        except OSError as error:
            raise self._unreadable(error) from error
        if count is not None:
            self._verify(room[:count])
        return count

    @property
    def can_send(self) -> bool:
        """Whether `send` may be called."""
        return self._reader.files.disk.reads_plainly

    def send(
        self, socket: int, window: SendWindow, filled: int, most: int, others: int = -1
    ) -> tuple[SendOutcome, memoryview]:
        """Sends the first `filled` bytes of the window and then the next verified ones, a window at a time.

        Without waiting: until about `most` were sent, the descriptor `others` can be read,
        the socket takes no more, the disk would have to be waited for, or the extent ends;
        which of these, and what is left in the window to be sent by the caller. Raises as
        `read_chunk` does.
        """
        sending = SendProgress(position=self._position, end=self._end)
        try:
            outcome = self._verifier.send(
                SendDescriptors(self._fd, socket, others), window, filled, most, sending
            )
            self._position = sending.position
            if outcome is SendOutcome.UNREADABLE and not sending.error:
                raise CorruptionError("the file ends early", start=self._position)
            self._check_whole()
        except CorruptionError:
            raise self._damage().error() from None
        if outcome is SendOutcome.UNREADABLE:
            raise self._unreadable(OSError(sending.error, os.strerror(sending.error)))
        return outcome, window.octets[sending.start : sending.stop]

    def _unreadable(self, error: OSError) -> DiskError:
        """Remembers the place: the next reader is not promised bytes that cannot be read."""
        end = min(self._end, self._position + _READ_BYTES)
        return self._reader.unreadable.note(self._segment.path, self._position, end, error)

    def _verify(self, chunk: bytes | bytearray | memoryview) -> None:
        try:
            if not chunk:
                raise CorruptionError("the file ends early", start=self._position)
            self._verifier.feed(chunk)
            self._position += len(chunk)
            self._check_whole()
        except CorruptionError:
            raise self._damage().error() from None

    def _check_whole(self) -> None:
        if self._position == self._end != self._verifier.position and not self._cut:
            raise CorruptionError("a batch claims to be longer than its segment")

    def offset_bound(self) -> int:
        """An offset behind every batch of the extent, exact to an interval of the index."""
        return self._reader.offset_bound(self._segment, self._end)

    def read_whole(self) -> bytes:
        """Everything that is left, without the batch that is cut off at the end."""
        begin, chunks = self._position, []
        while chunk := self.read_chunk(_READ_BYTES):
            chunks.append(chunk)
        return b"".join(chunks)[: self._verifier.position - begin]

    def _damage(self) -> "Damage":
        verifier = self._verifier
        return self._reader.note_damage(self._segment, self._fd, verifier.position, verifier.next_offset)

    def release(self) -> None:
        """Lets the file go; harmless when repeated."""
        if not self._released:
            self._released = True
            self._reader.files.unpin(self._segment.file)

    def __enter__(self) -> "Extent":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
