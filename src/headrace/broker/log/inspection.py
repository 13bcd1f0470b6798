"""Looking into produced batches before they are kept.

Which: those of compacted topics, whose keys compaction relies on, and those that
could expand beyond the bound; with `check_records` all of them.

A batch that is not compressed is looked into where it is appended, on the event
loop. One that is compressed, or large, is looked into before that: at once if it
turns out to be small, else on a thread.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from headrace.errors import RequestError
from headrace.records import (
    ATTRIBUTES_AT,
    CODEC_BITS,
    HEADER_BYTES,
    BatchHeader,
    Codec,
    check_batch,
    check_records,
    expansion_bound,
)

__all__ = ["Inspector"]

LARGE_BYTES = 2 * 1024 * 1024
SMALL_BYTES = 16 * 1024
SMALL_PLAIN_BYTES = 128 * 1024
_CODEC_AT = ATTRIBUTES_AT + 1
_MESSAGE_TOO_LARGE = 10


class Inspector:
    """Checks the records of produced batches; RequestError with Kafka's code if something is wrong.

    There is one thread for large batches, so that at most one is held decompressed
    at a time, however many clients send them: memory is bounded by `max_plain_bytes`.
    """

    def __init__(self, max_plain_bytes: int, *, check_all: bool) -> None:
        self._max_plain_bytes = max_plain_bytes
        self._check_all = check_all
        self._thread = ThreadPoolExecutor(1, "headrace-inspect")

    @property
    def looks_into_all(self) -> bool:
        """Whether there is no batch whose records are not looked at."""
        return self._check_all

    def looks_into(self, batch: memoryview | None, *, keyed: bool) -> bool:
        """Whether its records must be looked at: by `inspect` if `takes_long` says so, else by `check`."""
        if batch is None or len(batch) < HEADER_BYTES:
            return False
        if self._check_all or keyed:
            return True
        codec = batch[_CODEC_AT] & CODEC_BITS
        return bool(codec) and expansion_bound(codec, batch[HEADER_BYTES:]) > self._max_plain_bytes

    def takes_long(self, batch: memoryview | None) -> bool:
        """Whether looking into the batch may hold up the event loop."""
        if batch is None or len(batch) < HEADER_BYTES:
            return False
        return bool(batch[_CODEC_AT] & CODEC_BITS) or len(batch) > LARGE_BYTES

    def check(self, header: BatchHeader, batch: memoryview, *, keyed: bool) -> None:
        """Looks into a batch now."""
        check_records(header, batch, max_bytes=self._max_plain_bytes, keyed=keyed)

    async def inspect(self, batch: memoryview, *, keyed: bool) -> None:
        """Looks into a batch of which nothing is known yet, without holding up the event loop."""
        if len(batch) <= SMALL_BYTES and _is_small(batch, keyed):
            return
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, _check_whole, batch, self._max_plain_bytes, keyed)

    def close(self) -> None:
        self._thread.shutdown()


def _is_small(batch: memoryview, keyed: bool) -> bool:
    """Looks into the batch, unless it expands too much for the event loop."""
    try:
        _check_whole(batch, SMALL_PLAIN_BYTES, keyed)
    except RequestError as error:
        if error.code != _MESSAGE_TOO_LARGE:
            raise
        return False
    return True


def _check_whole(batch: memoryview, max_bytes: int, keyed: bool) -> None:
    """What the CRC does not vouch for is not decompressed."""
    header = check_batch(batch)
    if header.size_bytes == len(batch) and header.codec in tuple(Codec):  # else the append refuses it
        check_records(header, batch, max_bytes=max_bytes, keyed=keyed)
