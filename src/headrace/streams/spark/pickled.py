"""Values that travel with what Spark ships, and are opened only where they are needed.

Before a query's first batch Spark starts two Python processes that merely look at what it
will run. Whatever that refers to they would import, Arrow's kernels and all our operators,
and each query would begin a second later.
"""

from typing import Any, Generic, TypeVar

from pyspark.serializers import CloudPickleSerializer

__all__ = ["Pickled"]

T = TypeVar("T")

_spark: Any = CloudPickleSerializer  # without types


class Pickled(Generic[T]):
    """A value as Spark itself would ship it, in bytes until it is asked for."""

    def __init__(self, value: T) -> None:
        self._pickled: bytes = _spark().dumps(value)

    def open(self) -> T:
        value: T = _spark().loads(self._pickled)
        return value
