"""One query of an application: its checkpoint, its stores, and what is done with each batch.

`checkpoint` is where it goes on from, `sinks` what is done with a batch; `stores` opens its views, `graphs`
prepares the queries of dataflows, `frames` those of plain DataFrames.
"""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.app.query.checkpoint import Manifest as Manifest
    from headrace.app.query.sinks import READ as READ
    from headrace.app.query.sinks import SKIPPED as SKIPPED
    from headrace.app.query.sinks import BatchOutput as BatchOutput
    from headrace.app.query.sinks import GraphSink as GraphSink
    from headrace.app.query.sinks import StreamSink as StreamSink

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "checkpoint": "Manifest",
        "sinks": "BatchOutput GraphSink READ SKIPPED StreamSink",
    },
)
