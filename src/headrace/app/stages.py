"""Streams that read topics which the application itself writes, in a run that ends when it has caught up.

Such a stream is a second stage. Its query ends where its topic ended when it began, and the
first stage writes on: it has to be started again until its topic has grown no more.
"""

from collections.abc import Mapping

from headrace.app.planning import AppPlan
from headrace.app.records import dead_topic, late_topic
from headrace.client import Connection, admin
from headrace.client.questions import Log, Partition

__all__ = ["Stages"]

_ROUNDS = 2  # per stage: for records, and for what ends their transaction, which may be a moment behind


class Stages:
    """Knows where the topics of second stages ended when their queries were last started.

    What others write to such a topic meanwhile is not waited for: the number of rounds is bounded.
    """

    def __init__(self, plan: AppPlan, connection: Connection) -> None:
        written = {view.topic for view in plan.app.views.values()}
        written |= {dead_topic(plan.app.name), late_topic(plan.app.name)}
        self._topics = frozenset(each.name for each in plan.streams if each.name in written)
        self._rounds = _ROUNDS * len(self._topics)
        self._ends: dict[str, Mapping[Partition, int]] = {}
        self._log = Log(admin(connection), connection.bootstrap_servers) if self._topics else None

    def begin(self, name: str) -> None:
        """To be called before a query is started."""
        if name in self._topics:
            self._ends[name] = self._end(name)

    def behind(self) -> list[str]:
        """The queries whose topics have grown since; to be asked when all queries have ended."""
        if not self._rounds:
            return []
        self._rounds -= 1
        return [name for name, end in self._ends.items() if self._end(name) != end]

    def _end(self, topic: str) -> Mapping[Partition, int]:
        """Of all records, committed or not: when these are, what says so stands behind them."""
        assert self._log is not None
        return self._log.ends(self._log.partitions(topic))
