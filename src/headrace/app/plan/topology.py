"""How the queries of an application hang together: who reads what whom writes. No Spark, no I/O.

A query that reads a topic of rows which another query of the application makes is a *second
stage*, and that one is its maker. What of time goes from one to the other is settled here,
before anything runs; `docs/explanation/time.md` has the rules.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from headrace.app.application import App, View
from headrace.app.plan.names import dead_topic, late_topic
from headrace.app.plan.plan import PlannedStream, PlannedView
from headrace.app.plan.view_places import require_places, topics_of
from headrace.errors import ConfigError
from headrace.streams import PROCESSING_TIME, StreamSpec, field_path, field_type, rows_schema

__all__ = ["makers_first", "makers_of", "row_topics", "with_stages"]


def row_topics(planned: PlannedStream) -> list[str]:
    """The topics that a query writes one record a row to."""
    return list(_row_views(planned))


def makers_of(streams: Iterable[PlannedStream]) -> dict[str, str]:
    """The names of second stages, each with that of the query which makes its topic."""
    listed = list(streams)
    makers = {topic: each.name for each in listed for topic in row_topics(each)}
    return {each.name: makers[each.name] for each in listed if each.name in makers}


def makers_first(streams: Iterable[PlannedStream]) -> list[PlannedStream]:
    """The streams, second stages behind their makers."""
    left, makers = list(streams), makers_of(streams)
    ordered: list[PlannedStream] = []
    while left:
        waiting = {each.name for each in left}
        ready = [each for each in left if makers.get(each.name) not in waiting]
        ordered += ready
        left = [each for each in left if each not in ready]
    return ordered


def with_stages(
    app: App, streams: Sequence[PlannedStream], others: Sequence[tuple[View, Collection[str]]] = ()
) -> tuple[PlannedStream, ...]:
    """The same streams, where each knows what time it goes by, and the maker of a second stage who follows.

    `others` are the views of plain DataFrames and of several topics, each with the topics that it reads.

    Raises ConfigError, which names the topics, if records would go round in a ring, and one
    that names the view if it would be kept where another one or something else is.
    """
    require_places(
        app, [*(view.view for each in streams for view in each.views), *(view for view, _ in others)]
    )
    _require_no_ring(app, streams, others)
    makers, found = makers_of(streams), dict[str, PlannedStream]()
    for each in makers_first(streams):
        maker = found.get(makers.get(each.name, ""))
        spec = each.stream.spec
        if maker is not None and goes_on(maker, _row_views(maker)[each.name], spec):
            first_us = maker.stream.spec.lateness_us
            lateness_us = max(first_us, spec.lateness_us)
            made_by = (maker.stream.spec.group, maker.name, "")
            spec = replace(spec, lateness_us=lateness_us, source_lateness_us=first_us, maker=made_by)
        views = tuple(_with_order(view, spec) for view in each.views)
        found[each.name] = replace(each, stream=replace(each.stream, spec=spec), views=views)
    for name in reversed(found):
        followers = tuple(found[reader] for reader, maker in makers.items() if maker == name)
        found[name] = replace(found[name], followers=followers)
    return tuple(found[each.name] for each in streams)


def _with_order(view: PlannedView, spec: StreamSpec) -> PlannedView:
    """The same view; one that shows the last of each key knows by what (`docs/guides/applications.md`)."""
    if view.plan.latest is None:
        return view
    has_event_time = spec.event_time is not None or spec.follows_maker
    by = view.view.last or ("event_time" if has_event_time else "arrival")
    latest = replace(view.plan.latest, by=by, lateness_us=spec.lateness_us)
    return replace(view, plan=replace(view.plan, latest=latest))


def _require_no_ring(
    app: App, streams: Sequence[PlannedStream], others: Sequence[tuple[View, Collection[str]]]
) -> None:
    found = {each.name: _written(app, each) for each in streams}
    for view, topics in others:
        for topic in topics:
            found.setdefault(topic, set()).update(topics_of(app, view))
    written = {topic: sorted(topics & found.keys()) for topic, topics in found.items()}
    for topic in written:
        ring = _ring(written, [topic])
        if ring is not None:
            raise ConfigError(
                f"topics are derived from themselves, so their records would go round forever: "
                f"{' -> '.join(ring)}. Let one of them write to a topic of another name"
            )


def _written(app: App, planned: PlannedStream) -> set[str]:
    """The topics that a query writes, or may write, records to.

    What cannot be read of the letters themselves is not written down again.
    """
    topics = {topic for each in planned.views for topic in topics_of(app, each.view)}
    if planned.name not in (dead_topic(app.name), late_topic(app.name)):
        topics.add(dead_topic(app.name))
        if any(each.plan.operator is not None for each in planned.views):
            topics.add(late_topic(app.name))
    return topics


def _ring(written: Mapping[str, Sequence[str]], way: list[str]) -> list[str] | None:
    """The first way found that goes on from this one and comes back to where it began."""
    for topic in written[way[-1]]:
        if topic == way[0]:
            return [*way, topic]
        if topic not in way:
            found = _ring(written, [*way, topic])
            if found is not None:
                return found
    return None


def goes_on(maker: PlannedStream, view: PlannedView, reader: StreamSpec) -> bool:
    """Whether a second stage goes on with its maker's event time.

    It does if it names none, or the column that the maker goes by, of the same type and
    untouched on the way. Another column, or a corrected clock, is another time.
    """
    first = maker.stream.spec
    if reader.event_time is None:
        return True
    if reader.event_time != first.event_time or reader.event_time == PROCESSING_TIME:
        return False
    if first.sent_at is not None or reader.sent_at is not None:
        return False
    if not field_path(rows_schema(reader), reader.event_time):
        return False  # an expression: whether what it is made of comes through is not plain
    made, wanted = (_time_column(spec, reader.event_time) for spec in (first, reader))
    return made == wanted and _passes(view, reader.event_time.split(".")[0])


def _time_column(spec: StreamSpec, name: str) -> tuple[pa.DataType, str]:
    """The type of a column of times, or of a field inside one, and the unit of its numbers."""
    columns = rows_schema(spec)
    return field_type(columns, field_path(columns, name)), spec.time_unit


def _passes(view: PlannedView, name: str) -> bool:
    """Whether a column comes through a view's steps as it is; where that is not plain, no."""
    if not view.steps:
        return True
    from headrace.streams.engine import Select, WithColumns

    for step in view.steps:
        if isinstance(step, WithColumns) and name.lower() in {each.lower() for each in step.columns}:
            return False
        if isinstance(step, Select) and name not in {_words(each) for each in step.columns}:
            return False
    return True


def _words(column: object) -> str:
    return str(column).removeprefix("Column<'").removesuffix("'>")


def _row_views(planned: PlannedStream) -> dict[str, PlannedView]:
    return {
        each.view.topic: each
        for each in planned.views
        if each.view.topic is not None and each.plan.operator is None
    }
