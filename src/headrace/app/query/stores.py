"""Where an application's views are kept, and how its queries write them."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headrace.app.options import RunOptions
from headrace.app.plan.dataflow import PlannedGraph
from headrace.app.plan.names import dead_topic
from headrace.app.plan.planner import AppPlan, PlannedFrame, PlannedView
from headrace.app.plan.topology import makers_of, row_topics
from headrace.app.query.checkpoint import (
    ShadowBuild,
    StageTarget,
    done_so_far,
    has_come_to,
    last_begun,
    last_commit,
    rebuild_target,
    stale_builds,
)
from headrace.app.query.places import graph_folder
from headrace.app.query.sinks import ViewWriter
from headrace.client import Connection
from headrace.errors import ConfigError
from headrace.streams import StreamSpec
from headrace.views import Reflected, ViewStore, open_store

__all__ = ["OpenedStores", "open_stores", "store_url", "store_urls"]

Target = Mapping[int, int] | StageTarget


def store_url(plan: AppPlan, planned: PlannedView | PlannedFrame | PlannedGraph, data: Path) -> str | None:
    """Where a view is kept; None for a derived topic of rows, which is records and no view."""
    view = planned.view
    if view.topic is not None:
        is_rows = isinstance(planned, PlannedView) and planned.plan.operator is None
        return None if is_rows else f"topic://{view.topic}"
    return view.store or plan.app.store or f"sqlite:///{(data / 'views.db').resolve()}"


def store_urls(plan: AppPlan, data: Path) -> dict[str, str]:
    """Where all of them are, by name."""
    urls = {each.view.name: store_url(plan, each, data) for each in _views(plan)}
    return {view: url for view, url in urls.items() if url is not None}


def _views(plan: AppPlan) -> Iterator[PlannedView | PlannedFrame | PlannedGraph]:
    for each in plan.streams:
        yield from each.views
    yield from plan.frames
    yield from plan.graphs


@dataclass(frozen=True, slots=True)
class OpenedStores:
    """The store of every view; and what writes to it, which is the store, or a build that is still hidden."""

    stores: Mapping[str, ViewStore]
    builds: Mapping[str, ShadowBuild]

    @property
    def writers(self) -> dict[str, ViewWriter]:
        """What the queries write to, by view."""
        return {**self.stores, **self.builds}


def open_stores(
    plan: AppPlan,
    options: RunOptions,
    connection: Connection,
    query_ids: Mapping[str, str],
    specs: Mapping[str, StreamSpec],
    graph_specs: Mapping[str, Mapping[str, StreamSpec]],
    ending: contextlib.ExitStack,
    say: Callable[[str], None],
    *,
    epoch: int = 0,
) -> OpenedStores:
    """The stores, ready for the next batch of each view's query, whose id is given by view.

    `specs` are the streams as their queries read them, and `graph_specs` the topics of each dataflow,
    by view. `epoch` is that of this run.

    Stores of one URL are opened once. A view that shows what another query made, before
    a rebuild, is built out of sight. Raises ConfigError if a store lost what was done.
    """
    opened: dict[str, ViewStore] = {}
    stores: dict[str, ViewStore] = {}
    for view in _views(plan):
        url = store_url(plan, view, options.data)
        if url is None:
            continue
        if url not in opened:
            letters = dead_topic(plan.app.name)
            opened[url] = open_store(url, connection=connection, dead_letters=letters, epoch=epoch)
            ending.callback(opened[url].close)
        stores[view.view.name] = opened[url]
        _begin(opened[url], view, query_ids[view.view.name])
    builds: dict[str, ShadowBuild] = {}
    targets = _Targets(plan, options, connection, specs)
    for planned in plan.streams:
        of_stream = partial(_only, planned.name, targets)
        builds |= _hidden(planned.views, of_stream, stores, options, query_ids, ending, say)
        folder = options.query_folder(planned.name)
        for name in [each.view.name for each in planned.views if each.view.name in stores]:
            found = builds[name].reflected() if name in builds else stores[name].reflected(name)
            _require_batches(found, name, query_ids[name], folder)
    for flow in plan.graphs:
        name = flow.view.name
        builds |= _hidden(
            [flow], partial(targets.of_topics, graph_specs[name]), stores, options, query_ids, ending, say
        )
        found = builds[name].reflected() if name in builds else stores[name].reflected(name)
        _require_batches(found, name, query_ids[name], graph_folder(options.data, name))
    for build in builds.values():
        build.show_if_caught_up()
    stale_builds(options.data, {name: query_ids[name] for name in builds})
    return OpenedStores(stores, builds)


def _begin(store: ViewStore, view: PlannedView | PlannedFrame | PlannedGraph, query_id: str) -> None:
    if view.view.name not in store.views():
        store.prepare(view.schema)
    store.begin(view.view.name, query_id, schema=view.schema)


class _Targets:
    """Where each query has caught up, for those whose views are built out of sight."""

    def __init__(
        self, plan: AppPlan, options: RunOptions, connection: Connection, specs: Mapping[str, StreamSpec]
    ) -> None:
        self._options = options
        self._connection = connection
        self._specs = specs
        self._makers = makers_of(plan.streams)
        self._row_makers = {topic: each.name for each in plan.streams for topic in row_topics(each)}
        self._known: dict[str, Mapping[int, int] | StageTarget] = {}

    def of(self, name: str) -> Mapping[int, int] | StageTarget:
        if name not in self._known:
            maker = self._makers.get(name)
            ends = partial(rebuild_target, self._specs[name], self._connection)
            self._known[name] = {}  # should stages go round in a ring
            self._known[name] = ends() if maker is None else StageTarget(partial(self._is_done, maker), ends)
            if maker is not None:
                self.of(maker)  # its end is that of now, as everybody's
        return self._known[name]

    def of_topics(self, specs: Mapping[str, StreamSpec]) -> "dict[str, Target]":
        """Those of a query over several topics; where a query of rows makes one, once that has caught up."""
        found: dict[str, Target] = {}
        for topic, spec in specs.items():
            maker = self._row_makers.get(topic)
            ends = partial(rebuild_target, spec, self._connection)
            found[topic] = ends() if maker is None else StageTarget(partial(self._is_done, maker), ends)
            if maker is not None:
                self.of(maker)  # its end is that of now, as everybody's
        return found

    def _is_done(self, name: str) -> bool:
        target = self.of(name)
        offsets = target.now() if isinstance(target, StageTarget) else target
        return offsets is not None and has_come_to(offsets, done_so_far(self._options.query_folder(name)))


def _only(name: str, targets: _Targets) -> "dict[str, Target]":
    return {name: targets.of(name)}


def _hidden(
    views: Sequence[PlannedView | PlannedGraph],
    targets: "Callable[[], Mapping[str, Target]]",
    stores: Mapping[str, ViewStore],
    options: RunOptions,
    query_ids: Mapping[str, str],
    ending: contextlib.ExitStack,
    say: Callable[[str], None],
) -> dict[str, ShadowBuild]:
    """Builds of a query's views that now show the work of another query; `targets` by topic."""
    others = [
        view
        for view in views
        if view.view.name in stores and _shows_another(stores[view.view.name], view, query_ids)
    ]
    if not others:
        return {}
    wanted = targets()
    builds = {}
    for view in others:
        name = view.view.name
        build = ShadowBuild(
            stores[name],
            view.schema,
            query_ids[name],
            data=options.data,
            targets=wanted,
            compare=options.compare,
            say=say,
        )
        ending.callback(build.close)
        builds[name] = build
    return builds


def _shows_another(store: ViewStore, view: PlannedView | PlannedGraph, query_ids: Mapping[str, str]) -> bool:
    return store.reflected(view.view.name).query_id not in (None, query_ids[view.view.name])


def _require_batches(found: Reflected, view: str, query_id: str, folder: Path) -> None:
    """Raises ConfigError if the store has lost what its query had done, for that is never done again.

    Or if it has batches that the checkpoint knows nothing of: cut anew, they would be taken for
    repetitions, whatever is in them.
    """
    shown, done = found.batch_id if found.query_id == query_id else -1, last_commit(folder)
    if shown > last_begun(folder):
        raise ConfigError(
            f"view {view!r} shows batch {shown} of its query, and the checkpoint in {folder} knows of none "
            f"after {last_begun(folder)}: it is an older copy. Use the newest one, or run with --rebuild to "
            "rebuild all views from the log"
        )
    if shown < done:
        raise ConfigError(
            f"view {view!r} shows batch {shown} of its query, which has done {done}: its store was emptied, "
            "replaced, left behind, or taken by another application. Run it with --rebuild to rebuild all "
            "views from the log"
        )
