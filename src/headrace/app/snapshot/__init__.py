"""Snapshots: what an application that has come to rest needs to go on elsewhere, copied there and back.

A snapshot is a folder or a URL in the layout of checkpoints at a URL (`headrace.app.query.checkpoint`)
with `snapshot.json`, which is written last and makes it complete. Runs that start from one copy it, and
never change it. No Spark is needed for either. May import `query` and below.
"""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.app.snapshot.layout import Snapshot as Snapshot
    from headrace.app.snapshot.layout import SnapshotQuery as SnapshotQuery
    from headrace.app.snapshot.layout import open_place as open_place
    from headrace.app.snapshot.restore import restore_snapshot as restore_snapshot
    from headrace.app.snapshot.stop import stopped as stopped
    from headrace.app.snapshot.take import take_snapshot as take_snapshot

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "layout": "Snapshot SnapshotQuery open_place",
        "restore": "restore_snapshot",
        "stop": "stopped",
        "take": "take_snapshot",
    },
)
