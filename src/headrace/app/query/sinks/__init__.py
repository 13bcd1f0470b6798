"""What is done with a batch of a query: its views, records that fell aside, progress; each at most once.

`batch_output` and `batch_records` decide what goes where; `sink` writes it in the driver, `task_sink` in the
tasks; `graph_batch`, `graph_records`, `graph_sink` and `graph_task_sink` are the same for dataflows.
`side_topics` are records for topics, `counters` the words of the counters.
"""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.app.query.sinks.batch_output import BatchOutput as BatchOutput
    from headrace.app.query.sinks.batch_records import BatchRecords as BatchRecords
    from headrace.app.query.sinks.counters import BY_CLOCK as BY_CLOCK
    from headrace.app.query.sinks.counters import HIDDEN as HIDDEN
    from headrace.app.query.sinks.counters import READ as READ
    from headrace.app.query.sinks.counters import SKIPPED as SKIPPED
    from headrace.app.query.sinks.graph_batch import GraphBatch as GraphBatch
    from headrace.app.query.sinks.graph_records import GraphRecords as GraphRecords
    from headrace.app.query.sinks.graph_sink import GraphSink as GraphSink
    from headrace.app.query.sinks.graph_task_sink import GraphTaskSink as GraphTaskSink
    from headrace.app.query.sinks.graph_task_sink import stager_of as stager_of
    from headrace.app.query.sinks.side_topics import SideTopics as SideTopics
    from headrace.app.query.sinks.sink import OutputWriter as OutputWriter
    from headrace.app.query.sinks.sink import StreamSink as StreamSink
    from headrace.app.query.sinks.sink import ViewWriter as ViewWriter
    from headrace.app.query.sinks.sink import ignore as ignore
    from headrace.app.query.sinks.sink import row_changes as row_changes
    from headrace.app.query.sinks.sink import write_fitting as write_fitting
    from headrace.app.query.sinks.task_sink import SlotRecords as SlotRecords
    from headrace.app.query.sinks.task_sink import StagedView as StagedView
    from headrace.app.query.sinks.task_sink import TaskSink as TaskSink
    from headrace.app.query.sinks.task_sink import staged_views as staged_views

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "batch_output": "BatchOutput",
        "batch_records": "BatchRecords",
        "counters": "BY_CLOCK HIDDEN READ SKIPPED",
        "graph_batch": "GraphBatch",
        "graph_records": "GraphRecords",
        "graph_sink": "GraphSink",
        "graph_task_sink": "GraphTaskSink stager_of",
        "side_topics": "SideTopics",
        "sink": "OutputWriter StreamSink ViewWriter ignore row_changes write_fitting",
        "task_sink": "SlotRecords StagedView TaskSink staged_views",
    },
)
