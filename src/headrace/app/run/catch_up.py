"""Second stages in a run that ends once it has caught up.

A second stage reads a topic that the application itself writes. Its query ends where the
topic ended when it began, while the first stage goes on writing; so it is resumed until the
topic stops growing and the query that makes it makes no more progress.
"""

from collections.abc import Mapping

from headrace.app.plan.names import dead_topic, late_topic
from headrace.app.plan.planner import AppPlan
from headrace.app.plan.topology import makers_of
from headrace.client import CommittedOffset, Connection, GroupOffsets, admin
from headrace.client.topics import Log, PartitionKey

__all__ = ["CatchUp"]

_End = tuple[Mapping[PartitionKey, int], Mapping[int, CommittedOffset]]

_ROUNDS = 2  # per stage: for records, and for their transaction's marker, which may come a moment later


class CatchUp:
    """Where the topics of second stages, and their makers, stood when their queries were last started.

    The number of rounds is bounded: what others write to such a topic meanwhile is not waited for.
    """

    def __init__(self, plan: AppPlan, connection: Connection) -> None:
        written = {view.topic for view in plan.app.views.values()}
        written |= {dead_topic(plan.app.name), late_topic(plan.app.name)}
        self._topics = frozenset(each.name for each in plan.streams if each.name in written)
        self._rounds = _ROUNDS * len(self._topics)
        makers, streams = makers_of(plan.streams), {each.name: each for each in plan.streams}
        self._makers = {name: streams[maker].stream.spec for name, maker in makers.items()}
        self._connection = connection
        self._ends: dict[str, _End] = {}
        self._log = Log(admin(connection), connection.bootstrap_servers) if self._topics else None

    def begin(self, name: str) -> None:
        """Call it before a query is started."""
        if name in self._topics:
            self._ends[name] = self._end(name)

    def behind(self) -> list[str]:
        """The queries whose topics have grown since; call it when all queries have ended."""
        if not self._rounds:
            return []
        self._rounds -= 1
        return [name for name, end in self._ends.items() if self._end(name) != end]

    def _end(self, topic: str) -> "_End":
        """Where a topic ends, uncommitted records included: their transaction's marker will follow them."""
        assert self._log is not None
        return self._log.ends(self._log.partitions(topic)), self._progress(topic)

    def _progress(self, topic: str) -> Mapping[int, CommittedOffset]:
        """The committed progress of the query that makes a topic."""
        maker = self._makers.get(topic)
        if maker is None:
            return {}
        assert self._log is not None
        partitions = [partition for _, partition in self._log.partitions(maker.topic)]
        with GroupOffsets(self._connection, maker.group) as offsets:
            return offsets.fetch(maker.topic, partitions)
