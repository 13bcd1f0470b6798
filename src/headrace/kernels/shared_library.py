"""The compiled library, and what its functions take."""

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from headrace.errors import ConfigError

__all__ = ["INT", "LIBRARY", "POINTER", "address_of", "brief", "declared", "library"]

LIBRARY = Path(__file__).with_name("_kernels.so")
INT, POINTER = ctypes.c_int64, ctypes.c_void_p


@cache
def library() -> ctypes.CDLL:
    """Loads it once; ConfigError if it is missing or made for another machine."""
    return _loaded(ctypes.CDLL)


@cache
def brief() -> ctypes.CDLL:
    """The same, for calls of a microsecond: they keep Python's lock."""
    return _loaded(ctypes.PyDLL)


def declared(functions: Mapping[str, Sequence[type]]) -> ctypes.CDLL:
    """The library, whose functions take these arguments and return a number.

    ConfigError if it lacks one: then it was compiled before its source was changed.
    """
    loaded = library()
    for name, arguments in functions.items():
        function = getattr(loaded, name, None)
        if function is None:
            raise ConfigError(
                f"the compiled part of Headrace is older than its source: no {name}. Run `make setup`, "
                "or `.venv/bin/python hatch_build.py`, which only compiles it"
            )
        function.argtypes, function.restype = list(arguments), INT
    return loaded


def address_of(octets: bytearray | memoryview) -> int:
    """Where writable bytes are, for as long as they are kept and do not change their size."""
    return ctypes.addressof(ctypes.c_char.from_buffer(octets))


def _loaded(load: type[ctypes.CDLL]) -> ctypes.CDLL:
    try:
        loaded = load(str(LIBRARY))
    except OSError as error:
        raise ConfigError(
            f"the compiled part of Headrace cannot be loaded: {error}. Install the package again: "
            "`make setup` in its repository, or `pip install --force-reinstall` of it"
        ) from None
    takes = {
        "walk_batches": [POINTER, INT, INT, POINTER, POINTER, POINTER],
        "check_bytes": [POINTER, INT, POINTER],
        "send_checked": [INT, INT, INT, POINTER, INT, INT, INT, INT, POINTER, POINTER],
        "sum_bytes": [POINTER, INT, INT],
        "match_fetch": [POINTER, INT, POINTER, INT, INT, POINTER, POINTER],
        "write_fetched": [POINTER, POINTER, INT, POINTER, INT],
        "find_plain_batch": [POINTER, INT, POINTER, INT, POINTER],
        "commit_alone": [POINTER],
        "lay_out_records": [POINTER, INT, INT, INT, INT, INT, POINTER, INT],
        "count_records": [POINTER, INT],
        "lay_out_batches": [POINTER, INT, POINTER, INT],
        "lay_out_headers": [POINTER, INT, POINTER, POINTER, POINTER, POINTER, INT],
        "gather": [POINTER, INT, POINTER, POINTER, POINTER, POINTER],
        "read_objects": [POINTER, INT, POINTER, POINTER, POINTER, INT, ctypes.c_char_p, INT, POINTER],
        "number_texts": [POINTER, POINTER, INT, POINTER, POINTER, POINTER, POINTER],
    }
    for name, arguments in takes.items():
        function = getattr(loaded, name)
        function.argtypes = arguments
        function.restype = None if name in ("gather", "read_objects") else INT
    return loaded
