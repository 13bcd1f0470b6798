"""Topics of rows that an application makes and reads itself: of which build their records are.

A query that starts over writes its derived topics again, behind what queries before it
wrote. The records of its build are those from where each topic ended when it began: that
is noted in its manifest (`outputs`), in the same write as its id. A query that reads such
a topic, a second stage, begins there, and notes whose records it reads (`reads`). If that
is not the maker's id any more, what it has built is of records that were replaced, and it
starts over as well. So a start that was cut off anywhere is put right by the next.

Changelogs of aggregations are not meant: they take their old rows back themselves.
"""

from collections.abc import Mapping

from headrace.app.plan.plan import PlannedStream
from headrace.app.plan.topology import row_topics
from headrace.app.query.checkpoint.manifest import Manifest
from headrace.app.query.checkpoint.slots import fence_slots
from headrace.client import Connection, admin
from headrace.client.topics import Log
from headrace.client.write import RecordSink

__all__ = [
    "build_of",
    "is_of_another_build",
    "outputs_now",
    "record_sink_name",
]

Offsets = Mapping[str, int]


def record_sink_name(app: str, planned: PlannedStream) -> str:
    """Under which a query's records are written; opening it fences the writer before."""
    return f"{app}-{planned.name}"


def outputs_now(app: str, planned: PlannedStream, connection: Connection) -> dict[str, dict[str, int]]:
    """Where the topics of a query's rows end, by topic and partition; nothing of older queries follows."""
    topics = row_topics(planned)
    if not topics:
        return {}
    older = RecordSink(connection, record_sink_name(app, planned), "")
    older.open()  # what an older owner had open has ended when this returns
    older.close()
    fence_slots(record_sink_name(app, planned), connection)
    log = Log(admin(connection), connection.bootstrap_servers)
    return {
        topic: {str(partition): end for (_, partition), end in log.ends(log.partitions(topic)).items()}
        for topic in topics
    }


def is_of_another_build(reader: Manifest, maker: Manifest) -> bool:
    """Whether what a second stage has read was replaced; older versions noted neither side's build."""
    return reader.reads != maker.query_id if reader.reads else bool(maker.outputs)


def build_of(topic: str, maker: Manifest | None) -> Offsets:
    """Where the maker's build begins in a topic, by partition; nothing where that is not known."""
    return {} if maker is None else maker.outputs.get(topic, {})
