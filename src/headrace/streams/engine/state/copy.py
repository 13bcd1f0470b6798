"""A bucket's state copied from one place to another, entry by entry, as it is."""

from headrace.errors import CorruptionError
from headrace.streams.engine.state.log import BucketLog

__all__ = ["copy_bucket"]


def copy_bucket(source: BucketLog, target: BucketLog, last: int) -> int:
    """Copies the entries that the state behind batch `last` is made of; how many bytes they have.

    Raises CorruptionError if one is not there, or was made from another than the one before it.
    """
    copied, before = 0, None
    for number in range(source.head(last).base, last + 1):
        head, blobs = source.entry(number)
        if before not in (None, head.made_from):
            raise CorruptionError(
                f"the state behind batch {number} was made from another state of batch {number - 1} than the "
                "one that is there; rebuild the views from the log (headrace run --rebuild)"
            )
        target.put(head, blobs)
        copied, before = copied + sum(map(len, blobs)), head.token
    return copied
