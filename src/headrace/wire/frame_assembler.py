"""Cuts a byte stream into frames, in bounded memory.

Bytes first arrive in a scratch buffer shared by all connections (what is read
into it is taken out before anyone else reads). A small frame is copied out of
it. A large one gets a buffer of its own, once `reserve` has granted the bytes,
and the rest of it is received straight into that buffer: up to a megabyte it is
never copied again on its way to the disk. Beyond, the buffer grows with what
arrives, so that a client which announces much and sends little holds little.
Buffers of up to a megabyte are used again.
"""

from collections.abc import Callable

from headrace.wire.values import MalformedError

__all__ = ["SIZE_BYTES", "SMALL_FRAME_BYTES", "FrameAssembler", "FrameBuffers"]

SIZE_BYTES = 4  # what precedes every frame
SMALL_FRAME_BYTES = 64 * 1024
FIRST_BUFFER_BYTES = 1024 * 1024 + SMALL_FRAME_BYTES
LEAST_FRAME_BYTES = 8  # API key, version and correlation id
_ZEROS = memoryview(bytes(FIRST_BUFFER_BYTES))


class FrameBuffers:
    """Memory for large frames, used again: to have fresh memory costs more than to check what is in it.

    Keeps at most `most_bytes`, those of the sizes that were used last. A buffer that was
    given back is used again only if nobody has a view of it by then; Python itself sees to that.
    """

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        # By room, of which a frame fills more than half; the one used last comes last.
        self._kept: dict[int, list[bytearray]] = {}

    def take(self, size: int) -> bytearray:
        """A buffer of so many bytes, which hold anything."""
        room = _room(size)
        kept = self._kept.get(room)
        while kept:
            buffer = kept.pop()  # the last one used is still in the processor's caches
            self._left += room
            try:
                buffer.pop()  # any change of size, and there always is one
            except BufferError:
                continue  # somebody still looks at it
            buffer += _ZEROS[: max(0, size - len(buffer))]
            del buffer[size:]
            return buffer
        buffer = bytearray(room)
        del buffer[size:]
        return buffer

    def give_back(self, buffer: bytearray) -> None:
        """Keeps it, if it came from here and there is room, or has been for larger or smaller ones."""
        if len(buffer) > FIRST_BUFFER_BYTES:
            return
        room = _room(len(buffer))
        kept = self._kept[room] = self._kept.pop(room, [])
        while room > self._left:
            longest_unused = next(iter(self._kept))
            if longest_unused == room:  # nothing else is kept
                return
            if self._kept[longest_unused]:
                self._kept[longest_unused].pop()
                self._left += longest_unused
            else:
                del self._kept[longest_unused]
        self._left -= room
        kept.append(buffer)


def _room(size: int) -> int:
    room = FIRST_BUFFER_BYTES
    while size <= room // 2 and room > SMALL_FRAME_BYTES:
        room //= 2
    return room


class FrameAssembler:
    """Turns received bytes into whole frames.

    `reserve(size)` is asked before a large frame gets its buffer (from `take`) and before that
    grows; while it answers False, `blocked` is true, nothing more may be
    received, and `unblock()` tries again. All that was reserved for a frame is
    its size once it is emitted.
    """

    def __init__(
        self,
        scratch: memoryview,
        *,
        max_bytes: int,
        reserve: Callable[[int], bool],
        emit: Callable[[bytearray], None],
        take: Callable[[int], bytearray] = bytearray,
    ) -> None:
        self._scratch = scratch
        self.bound(max_bytes)
        self._reserve = reserve
        self._emit = emit
        self._take = take
        self._leftover = b""
        self._large: bytearray | None = None  # as far as it was reserved
        self._size = 0  # of the whole large frame
        self._received = 0
        self.blocked = False

    def bound(self, max_bytes: int, why: str = "max_request_bytes") -> None:
        """The largest frame from now on, and what says so."""
        self._max_bytes, self._why = max_bytes, why

    @property
    def in_the_middle(self) -> bool:
        """Whether a frame has begun and not ended."""
        return self._large is not None or bool(self._leftover)

    @property
    def reserved_bytes(self) -> int:
        """What was reserved for a large frame that is not whole yet."""
        return len(self._large) if self._large is not None else 0

    def buffer(self) -> memoryview:
        """Where to receive next."""
        if self._large is not None:
            return memoryview(self._large)[self._received :]
        return self._scratch

    def is_whole(self, count: int) -> bool:
        """Whether the next `count` bytes, as they were written into `buffer()`, are one small frame."""
        size = count - SIZE_BYTES
        return (
            self._large is None
            and not self._leftover
            and size == int.from_bytes(self._scratch[:SIZE_BYTES], "big")
            and LEAST_FRAME_BYTES <= size <= min(SMALL_FRAME_BYTES, self._max_bytes)
        )

    def received(self, count: int) -> None:
        """Takes `count` bytes that were written into `buffer()`; raises MalformedError."""
        if self.is_whole(count):  # as nearly always
            self._emit(bytearray(self._scratch[SIZE_BYTES:count]))
        elif self._large is None:
            self._assemble(self._leftover + bytes(self._scratch[:count]))
        else:
            self._received += count
            self._go_on()

    def unblock(self) -> None:
        """Tries again after `reserve` said no."""
        if self._large is None:
            self._assemble(self._leftover)
        else:
            self._go_on()

    def abandon(self) -> None:
        """Forgets what was received: the connection is over."""
        self._large, self._leftover = None, b""

    def _go_on(self) -> None:
        """Emits the large frame if it is whole, or makes room for more of it."""
        self.blocked = False
        if self._large is None or self._received < len(self._large):
            return
        if self._received == self._size:
            frame, self._large = self._large, None
            self._emit(frame)
            return
        more = min(self._size - self._received, self._received)
        if not self._reserve(more):
            self.blocked = True
            return
        grown = bytearray(self._received + more)
        grown[: self._received] = self._large
        self._large = grown

    def _assemble(self, data: bytes) -> None:
        position, end = 0, len(data)
        self.blocked = False
        while end - position >= 4:
            size = int.from_bytes(data[position : position + 4], "big", signed=True)
            self._check(size)
            start, stop = position + 4, position + 4 + size
            if size > SMALL_FRAME_BYTES:
                if not self._reserve(min(size, FIRST_BUFFER_BYTES)):
                    self.blocked = True
                    break
                position = self._begin_large(data, start, size)
            elif stop > end:
                break
            else:
                self._emit(bytearray(data[start:stop]))
                position = stop
        self._leftover = data[position:]

    def _begin_large(self, data: bytes, start: int, size: int) -> int:
        """Moves what is there of a large frame into its own buffer; the position behind it."""
        stop = min(start + size, len(data))
        self._size, self._received = size, stop - start
        self._large = self._take(min(size, FIRST_BUFFER_BYTES))
        self._large[: stop - start] = memoryview(data)[start:stop]
        self._go_on()
        return stop

    def _check(self, size: int) -> None:
        if size < LEAST_FRAME_BYTES or size > self._max_bytes:
            raise MalformedError(
                f"a frame of {size} bytes; frames have {LEAST_FRAME_BYTES} to {self._max_bytes} ({self._why})"
            )
