"""aiokafka's reader and codecs, which are in C; imported when first needed, since the broker must stay small.

Only here, and by one thread at a time: aiokafka's modules import each other in circles, and
of two threads that begin at different ends one meets a module that is half loaded.
"""

import struct
import threading
from functools import cache
from typing import Any

__all__ = ["codecs", "record_reader"]

READ_ERRORS: tuple[type[Exception], ...] = (ValueError, IndexError, struct.error)
"""What the reader raises on records that do not fit, beside its own CorruptRecordException."""

_loading = threading.Lock()


@cache
def record_reader() -> tuple[Any, tuple[type[Exception], ...]]:
    """The reader of an uncompressed batch's records, and what it raises if they do not fit."""
    with _loading:
        from aiokafka.errors import CorruptRecordException
        from aiokafka.record.default_records import DefaultRecordBatch
    return DefaultRecordBatch, (CorruptRecordException, *READ_ERRORS)


@cache
def codecs() -> Any:
    """The module with a function for each kind of compression."""
    with _loading:
        from aiokafka import codec
    return codec
