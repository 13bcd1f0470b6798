"""Looking into a produced batch: do its records fill it, and nothing but it?

A client's record count, offsets and lengths are claims. A reader of the batch
later, a consumer or compaction, must be able to rely on them, so they are checked
once, before the batch is kept: column by column where records are of one size, a
few nanoseconds each, else by aiokafka's reader in C, about 0.1 microseconds each.
Nothing is kept of the records.
"""

from operator import attrgetter, eq

from headrace.errors import CorruptionError, RequestError
from headrace.records.aiokafka_native import record_reader
from headrace.records.batch import INVALID_RECORD, Readable
from headrace.records.batch_header import HEADER_BYTES, BatchHeader
from headrace.records.codec import TooLarge
from headrace.records.record import plain_batch
from headrace.records.same_size import is_uniform

__all__ = ["check_records"]

_MESSAGE_TOO_LARGE = 10
_MANY = 400  # from here on columns are faster
_offset = attrgetter("offset")
_key = attrgetter("key")


def check_records(header: BatchHeader, batch: Readable, *, max_bytes: int, keyed: bool = False) -> None:
    """Raises RequestError unless the records are what `header` says, each at the next offset.

    MESSAGE_TOO_LARGE if they expand beyond `max_bytes`, which also bounds the memory
    used, whatever the data claims; INVALID_RECORD for anything else. With `keyed`
    every record needs a key, as compaction does.
    """
    reader, errors = record_reader()
    unreadable: tuple[type[Exception], ...] = (CorruptionError, *errors)
    try:
        plain = plain_batch(header, batch, max_bytes) if header.codec else batch
        if header.record_count >= _MANY and is_uniform(plain, HEADER_BYTES, header.record_count, keyed=keyed):
            return
        in_order = all(map(eq, map(_offset, reader(plain)), range(header.base_offset, header.next_offset)))
        unkeyed = keyed and None in map(_key, reader(plain))
    except TooLarge as error:
        raise RequestError(str(error), code=_MESSAGE_TOO_LARGE) from error
    except unreadable as error:
        raise _invalid(f"the records of the batch cannot be read: {error}") from error
    if not in_order:
        raise _invalid("the records of the batch do not have the offsets 0, 1, 2 and so on")
    if unkeyed:
        raise _invalid("a record without a key, and the topic is compacted: give every record a key")


def _invalid(message: str) -> RequestError:
    return RequestError(message, code=INVALID_RECORD)
