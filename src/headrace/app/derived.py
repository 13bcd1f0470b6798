"""Topics of rows that an application makes and reads itself: of which build their records are.

A query that begins anew writes its derived topics again, behind what queries before it
wrote. The records of its build are those from where each topic ended when it began: that
is noted in its manifest (`outputs`), in the same write as its id. A query that reads such
a topic, a second stage, begins there, and notes whose records it reads (`reads`). If that
is not the maker's id any more, what it has built is of records that were replaced, and it
begins anew as well. So a start that was cut off anywhere is put right by the next.

Changelogs of aggregations are not meant: they take their old rows back themselves.
"""

from collections.abc import Iterable, Mapping

from headrace.app.manifest import Manifest
from headrace.app.plans import PlannedStream
from headrace.client import Connection, admin
from headrace.client.questions import Log
from headrace.views import RecordSink

__all__ = [
    "build_of",
    "is_of_another_build",
    "makers_first",
    "makers_of",
    "outputs_now",
    "record_sink_name",
    "row_topics",
]

Offsets = Mapping[str, int]


def row_topics(planned: PlannedStream) -> list[str]:
    """The topics that a query writes one record a row to."""
    return [
        each.view.topic
        for each in planned.views
        if each.view.topic is not None and each.plan.operator is None
    ]


def makers_of(streams: Iterable[PlannedStream]) -> dict[str, str]:
    """The names of second stages, each with that of the query which makes its topic."""
    listed = list(streams)
    makers = {topic: each.name for each in listed for topic in row_topics(each)}
    return {each.name: makers[each.name] for each in listed if makers.get(each.name, each.name) != each.name}


def makers_first(streams: Iterable[PlannedStream]) -> list[PlannedStream]:
    """The streams, second stages behind their makers; where they go round in a ring, in any order."""
    left, makers = list(streams), makers_of(streams)
    ordered: list[PlannedStream] = []
    while left:
        waiting = {each.name for each in left}
        ready = [each for each in left if makers.get(each.name) not in waiting] or left
        ordered += ready
        left = [each for each in left if each not in ready]
    return ordered


def record_sink_name(app: str, planned: PlannedStream) -> str:
    """Under which a query's records are written; whoever opens it fences who did before."""
    return f"{app}-{planned.name}"


def outputs_now(app: str, planned: PlannedStream, connection: Connection) -> dict[str, dict[str, int]]:
    """Where the topics of a query's rows end, by topic and partition; nothing of older queries follows."""
    topics = row_topics(planned)
    if not topics:
        return {}
    older = RecordSink(connection, record_sink_name(app, planned), "")
    older.open()  # what an older owner had open has ended when this returns
    older.close()
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
