"""The slots of a query: as many tasks as write what they make, each under a name of its own.

With slots, the task of slot n has the buckets b with b mod slots = n, and writes what comes of them.
A batch that is computed again must be divided as before, or a slot would take the part of another
for its own, which it has written; so the number is in the manifest, and changes between batches only.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from headrace.app.query.checkpoint.manifest import Manifest
from headrace.app.query.checkpoint.spark_checkpoint import is_under_way
from headrace.client import Connection
from headrace.client.write import fence, transactional_id

__all__ = ["BUCKETS", "buckets_for", "fence_slots", "slot_name", "with_slots"]

BUCKETS = 8
_BUCKETS_PER_TASK = 2  # so that a bucket that is larger than others holds up less


def buckets_for(tasks: int | None) -> int:
    """How many buckets a query begins with: enough for so many tasks at a time, each with as many.

    Without a number, as on a local Spark, few: every bucket of a small batch costs some.
    """
    if tasks is None:
        return BUCKETS
    return tasks * max(_BUCKETS_PER_TASK, -(-BUCKETS // tasks))


def slot_name(name: str, slot: int) -> str:
    """Under which a slot of a query writes, whose own name is given; opening it fences the attempt before."""
    return f"{_prefix(name)}{slot}"


def _prefix(name: str) -> str:
    return f"{name}:"  # no topic's name has a colon, so this begins no other query's name


def with_slots(
    manifest: Manifest, folder: Path, wanted: int, say: Callable[[str], None] = lambda _: None
) -> Manifest:
    """The manifest with so many slots, durably; as it is, and `say` is told, while a batch is under way.

    0 is for a query whose driver writes everything.
    """
    wanted = min(wanted, manifest.buckets)
    if wanted == manifest.slots:
        return manifest
    if is_under_way(folder):
        now, then = (f"{each} tasks" if each else "the driver" for each in (manifest.slots, wanted))
        say(
            f"{folder.name}: a batch is under way, so records are written by {now}; "
            f"after another start, by {then}"
        )
        return manifest
    changed = replace(manifest, slots=wanted)
    changed.write(folder)
    return changed


def fence_slots(name: str, connection: Connection) -> None:
    """Fences whoever writes as a slot of a query, of which there may have been more than there are now."""
    fence(connection, transactional_id(_prefix(name)))
