"""Memory of large values goes back to the system as soon as they are freed.

The C library keeps what it has handed out once for later, up to 32 MiB a piece, and more than that in sum:
after some rows of 50 MB, a process would hold memory for several of them for good.
"""

import contextlib
import ctypes

__all__ = ["return_large_memory"]

_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 8 << 20


def return_large_memory() -> None:
    """For this process; does nothing where the C library is not glibc."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
