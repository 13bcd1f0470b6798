"""The projections of an application: where they are kept, and how they look to others."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.app.application import App
from headrace.app.status.description import (
    AppDescription,
    PipelineEdge,
    PipelineNode,
    QueryDescription,
    StoreDescription,
    ViewDescription,
    describe_store,
)
from headrace.errors import ConfigError
from headrace.nearest import no_such

if TYPE_CHECKING:
    from headrace.sourcing.projections import Projection, ProjectionStart

__all__ = ["projection_starts", "projection_stores", "request_rebuilds", "with_projections"]


def projection_stores(app: App, data: Path) -> dict[str, str]:
    """The URL of each projection's store, by name.

    Without one of their own they are in a file that no query of Spark's writes, for neither should wait
    for the other.
    """
    default = app.store or f"sqlite:///{(data / 'projections.db').resolve()}"
    return {name: each.store or default for name, each in app.projections.items()}


def projection_starts(
    app: App, data: Path, *, compare: bool, say: Callable[[str], None]
) -> "list[tuple[Projection, ProjectionStart]]":
    """What the serving processes need to keep the projections."""
    from headrace.sourcing.projections import ProjectionStart
    from headrace.views.rebuilt import Rebuilds

    rebuilds = Rebuilds(data)
    return [
        (app.projections[name], ProjectionStart(store=url, rebuilds=rebuilds, compare=compare, say=say))
        for name, url in projection_stores(app, data).items()
    ]


def request_rebuilds(app: App, data: Path, names: Iterable[str], *, compare: bool) -> None:
    """Asks for rebuilds of these projections, which the processes that keep them carry out."""
    from headrace.views.rebuilt import Rebuilds

    for name in names:
        if name not in app.projections:
            raise ConfigError(f"{app.name}: {no_such('projection', name, app.projections)}")
        Rebuilds(data).request(name, compare=compare)


# --- how others see them --------------------------------------------------------------------------


def with_projections(described: AppDescription, app: App, data: Path, folder: Path) -> AppDescription:
    """The description of an application with its projections, too.

    Relative URLs of stores are taken from `folder`.
    """
    drawn = list(_drawn(app))
    nodes = [each for each in drawn if isinstance(each, PipelineNode)]
    edges = [each for each in drawn if isinstance(each, PipelineEdge)]
    return replace(
        described,
        views=(*described.views, *_views(app, data, folder)),
        queries=(*described.queries, *_queries(app)),
        nodes=tuple(dict.fromkeys([*described.nodes, *nodes])),
        edges=(*described.edges, *edges),
    )


def _views(app: App, data: Path, folder: Path) -> Iterator[ViewDescription]:
    stores = projection_stores(app, data)
    for each in app.projections.values():
        yield _view(app, each, describe_store(stores[each.name], folder))


def _view(app: App, projection: "Projection", store: StoreDescription) -> ViewDescription:
    return ViewDescription(
        name=projection.name,
        doc=projection.doc,
        kind="projection",
        window=None,
        key=projection.schema.key,
        columns={field.name: str(field.type) for field in projection.schema.columns},
        query=_query_name(projection),
        stream=_topic(app, projection),
        topic=None,
        store=store,
    )


def _queries(app: App) -> Iterator[QueryDescription]:
    """What each of them reads, and the group that shows how far it is."""
    from headrace.sourcing.projections import projection_group

    for each in app.projections.values():
        reads: Mapping[str, str] = {_topic(app, each): projection_group(app.name, each.name)}
        yield QueryDescription(name=_query_name(each), folder="rebuilding", reads=reads)


def _drawn(app: App) -> Iterator[PipelineNode | PipelineEdge]:
    """From the events to the view."""
    for each in app.projections.values():
        topic, query = _topic(app, each), _query_name(each)
        nodes = [
            PipelineNode(id=f"topic:{topic}", kind="topic", name=topic, label=topic),
            PipelineNode(id=f"query:{query}", kind="query", name=query, label="kept by `headrace serve`"),
            PipelineNode(id=f"view:{each.name}", kind="view", name=each.name, label=each.name),
        ]
        yield from nodes
        yield PipelineEdge(tail=nodes[0].id, head=nodes[1].id)
        yield PipelineEdge(tail=nodes[1].id, head=nodes[2].id)


def _query_name(projection: "Projection") -> str:
    return f"projection {projection.name}"


def _topic(app: App, projection: "Projection") -> str:
    from headrace.sourcing import Topics

    return Topics.of(app.name, projection.kind.name).events
