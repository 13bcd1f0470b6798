"""What `headrace snapshot` shows. Pure."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.app.snapshot import Snapshot, SnapshotQuery

__all__ = ["left_behind_line", "query_line", "snapshot_data"]

_KINDS = {"queries": "stream", "dataflows": "view"}


def query_line(query: "SnapshotQuery") -> str:
    """One query, copied."""
    kind, _, name = query.name.partition("/")
    if query.batch < 0 and not query.is_under_way:
        return f"{_KINDS[kind]} {name}: nothing read yet"
    line = f"{_KINDS[kind]} {name}: batch {query.batch:,}, {query.buckets} buckets, "
    line += f"{query.state_bytes:,} bytes of state"
    return line + (f"; batch {query.batch + 1:,} was under way and is repeated" if query.is_under_way else "")


def left_behind_line(view: str, store: str) -> str:
    """A view whose rows are not in the snapshot, and what to do."""
    if store.startswith("memory"):
        return f"view {view} was kept in memory, and is gone: start with --rebuild, or give it a store"
    return f"view {view} is in {store}: these files must be where the new run looks for them"


def snapshot_data(snapshot: "Snapshot") -> dict[str, Any]:
    """A snapshot as plain data."""
    return {
        "id": snapshot.id,
        "app": snapshot.app,
        "queries": [asdict(each) for each in snapshot.queries],
        "left_behind": dict(snapshot.left_behind),
    }
