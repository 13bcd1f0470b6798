"""One query of an application: its checkpoint and manifest, its stores, and what is done with each batch."""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.app.query.batch_output import BatchOutput as BatchOutput
    from headrace.app.query.counters import READ as READ
    from headrace.app.query.counters import SKIPPED as SKIPPED
    from headrace.app.query.graph_sink import GraphSink as GraphSink
    from headrace.app.query.manifest import Manifest as Manifest
    from headrace.app.query.sink import StreamSink as StreamSink

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "batch_output": "BatchOutput",
        "counters": "READ SKIPPED",
        "graph_sink": "GraphSink",
        "manifest": "Manifest",
        "sink": "StreamSink",
    },
)
