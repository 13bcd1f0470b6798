"""How an application's topics are made from one another, and what that means for a token. Pure.

A view over a derived topic reflects offsets of that topic, and a write is known by offsets of
the topic that it went to. From the one to the other it goes query by query: once a query has come
to the offsets of the write, all that it makes of it lies before where its topic ends then. Those ends
are what the next query has to come to, and at last the view.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from headrace.app.status import AppDescription, QueryDescription, ViewDescription
from headrace.views import topic_of_view

__all__ = ["Derivations", "Maker", "Stage"]


@dataclass(frozen=True, slots=True)
class Maker:
    """A query that makes a topic; of a changelog with the `view` that it is, whose store says how far it is.

    `is_of_rows` says that it is a topic of rows, of which a rebuild writes other records.
    """

    query: QueryDescription
    view: ViewDescription | None = None
    is_of_rows: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """A derived topic on the way from a write to a view, and by which makers the write gets there."""

    topic: str
    makers: tuple[Maker, ...]


@dataclass(frozen=True, slots=True)
class Derivations:
    """The queries of an application by name, and the makers of its topics."""

    queries: Mapping[str, QueryDescription]
    makers: Mapping[str, tuple[Maker, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, described: AppDescription) -> "Derivations":
        """Those of an application; none where an older version described it."""
        queries = {each.name: each for each in described.queries}
        makers: dict[str, tuple[Maker, ...]] = {}
        for query in described.queries:
            for topic in query.rows:
                makers[topic] = (*makers.get(topic, ()), Maker(query, is_of_rows=True))
            for topic in query.asides:
                makers[topic] = (*makers.get(topic, ()), Maker(query))
        for view in described.views:
            changelog = _changelog(view)
            if changelog is not None and view.query in queries:
                makers[changelog] = (*makers.get(changelog, ()), Maker(queries[view.query], view))
        return cls(queries, makers)

    def stages(self, reads: Iterable[str], written: Collection[str]) -> list[Stage]:
        """The derived topics through which a write to these topics gets to a reader, makers first."""
        found: dict[str, Stage | None] = {}
        for topic in reads:
            self._visit(topic, written, found)
        return [each for each in found.values() if each is not None]

    def _visit(self, topic: str, written: Collection[str], found: dict[str, Stage | None]) -> bool:
        """Whether the write gets to this topic; notes the stages on the way, in order."""
        if topic not in found:
            found[topic] = None  # letters may come from a query that reads letters
            makers = [each for each in self.makers.get(topic, ()) if self._reaches(each, written, found)]
            if makers:
                del found[topic]
                found[topic] = Stage(topic, tuple(makers))
        return found[topic] is not None or topic in written

    def _reaches(self, maker: Maker, written: Collection[str], found: dict[str, Stage | None]) -> bool:
        reached = {topic: self._visit(topic, written, found) for topic in maker.query.reads}
        return any(reached.values())


def _changelog(view: ViewDescription) -> str | None:
    """The topic of the application's log on which a view is kept."""
    kept = None if view.store is None else topic_of_view(view.store.url, view.name)
    return kept[1] if kept is not None and kept[0] is None else None
