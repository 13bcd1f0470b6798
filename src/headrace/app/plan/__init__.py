"""An application file into a plan: its queries, how they depend on each other, and the graph of them.

Nothing here starts a query or touches a checkpoint. May import `streams` and below.
"""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.app.plan.dataflow import PlannedGraph as PlannedGraph
    from headrace.app.plan.dataflow import is_dataflow as is_dataflow
    from headrace.app.plan.dataflow import plan_graph as plan_graph
    from headrace.app.plan.graph import as_text as as_text
    from headrace.app.plan.graph import graph_of as graph_of
    from headrace.app.plan.names import dead_topic as dead_topic
    from headrace.app.plan.names import late_topic as late_topic
    from headrace.app.plan.picture import as_svg as as_svg
    from headrace.app.plan.plan import PlannedStream as PlannedStream
    from headrace.app.plan.plan import plan_stream as plan_stream
    from headrace.app.plan.plan import stream_of as stream_of
    from headrace.app.plan.plan import topics_used as topics_used
    from headrace.app.plan.planner import plan_app as plan_app
    from headrace.app.plan.topology import makers_of as makers_of
    from headrace.app.plan.topology import with_stages as with_stages

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "dataflow": "PlannedGraph is_dataflow plan_graph",
        "graph": "as_text graph_of",
        "names": "dead_topic late_topic",
        "picture": "as_svg",
        "plan": "PlannedStream plan_stream stream_of topics_used",
        "planner": "plan_app",
        "topology": "makers_of with_stages",
    },
)
