"""Dataflows: queries over several topics, as graphs of operators in stages.

    feed ──> [projection] ──shuffle──> stage 0 ──> [projection] ──shuffle──> stage 1 ──> … ──> sink

`graph` is the graph as plain values, `step` what one bucket of a stage does in a batch, without
Spark; `packing`, `stage` and `query` are the plumbing on Spark, on the messages and the state of
`engine`. `definition` is what a view is, computed in batch from the records.
"""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.streams.dataflow.definition import replayed_view as replayed_view
    from headrace.streams.dataflow.definition import table_rows as table_rows
    from headrace.streams.dataflow.definition import why_not_replayed as why_not_replayed
    from headrace.streams.dataflow.graph import Edge as Edge
    from headrace.streams.dataflow.graph import Graph as Graph
    from headrace.streams.dataflow.graph import Node as Node
    from headrace.streams.dataflow.graph import SourceClock as SourceClock
    from headrace.streams.dataflow.graph import TopicSource as TopicSource
    from headrace.streams.dataflow.graph import ViewOutput as ViewOutput
    from headrace.streams.dataflow.graph import graph_heartbeat as graph_heartbeat
    from headrace.streams.dataflow.graph import stepped_edges as stepped_edges
    from headrace.streams.dataflow.history_definition import comparable_versions as comparable_versions
    from headrace.streams.dataflow.lineage import RECORDS as RECORDS
    from headrace.streams.dataflow.lineage import record_column as record_column
    from headrace.streams.dataflow.lineage import traced_view as traced_view
    from headrace.streams.dataflow.lineage import traced_windows as traced_windows
    from headrace.streams.dataflow.packing import SourcePacker as SourcePacker
    from headrace.streams.dataflow.packing import pack_edges as pack_edges
    from headrace.streams.dataflow.packing import unpack_rows as unpack_rows
    from headrace.streams.dataflow.packing import wide_schema as wide_schema
    from headrace.streams.dataflow.query import GraphQuery as GraphQuery
    from headrace.streams.dataflow.query import project_edges as project_edges
    from headrace.streams.dataflow.query import start_graph as start_graph
    from headrace.streams.dataflow.shuffles import are_shuffled as are_shuffled
    from headrace.streams.dataflow.shuffles import stays as stays
    from headrace.streams.dataflow.step import StageBatch as StageBatch
    from headrace.streams.dataflow.step import StageOperators as StageOperators
    from headrace.streams.dataflow.step import advance_stage as advance_stage
    from headrace.streams.dataflow.step import raw_producer as raw_producer

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "definition": "replayed_view table_rows why_not_replayed",
        "graph": "Edge Graph Node TopicSource SourceClock ViewOutput graph_heartbeat stepped_edges",
        "history_definition": "comparable_versions",
        "lineage": "RECORDS record_column traced_view traced_windows",
        "packing": "SourcePacker pack_edges unpack_rows wide_schema",
        "query": "GraphQuery project_edges start_graph",
        "shuffles": "are_shuffled stays",
        "step": "StageBatch StageOperators advance_stage raw_producer",
    },
)
