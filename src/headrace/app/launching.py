"""From a plan to queries that can be started: checkpoints, stores and sinks, in that order."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.app.checkpoints import ready_manifests
from headrace.app.frames import frame_query, ready_frames
from headrace.app.manifest import Told
from headrace.app.planning import AppPlan
from headrace.app.reports import BatchReport
from headrace.app.starting import RunOptions, Starter
from headrace.app.view_stores import OpenedStores, open_stores
from headrace.client import Connection
from headrace.streams.spec import StreamSpec

__all__ = ["Launched", "Launcher"]


@dataclass(frozen=True, slots=True)
class Launched:
    """What one start, or one rebuild, made ready: stores, and what starts each query from its checkpoint.

    `specs` are the streams as these queries read them.
    """

    opened: OpenedStores
    specs: Mapping[str, StreamSpec]
    starts: Mapping[str, Callable[[], StreamingQuery]]


@dataclass(frozen=True, slots=True)
class Launcher:
    """Makes an application's queries ready, at the start and after every rebuild."""

    spark: SparkSession
    plan: AppPlan
    connection: Connection
    options: RunOptions
    on_batch: Callable[[BatchReport], None]
    on_step: Callable[[str], None]

    def launch(
        self, ending: contextlib.ExitStack, *, rebuild: bool, told: Mapping[str, Told] | None = None
    ) -> Launched:
        """Stores and queries, which `ending` gives back; with `rebuild`, all checkpoints are dropped first.

        `told` says which dead and late records the new queries need not tell again.

        Raises ConfigError if a checkpoint does not fit and may not be dropped.
        """
        plan, options = self.plan, self.options
        manifests = ready_manifests(plan, options, self.connection, rebuild=rebuild, told=told)
        frames = ready_frames(plan, options.data, rebuild=rebuild)
        ids = {view.view.name: manifests[each.name].query_id for each in plan.streams for view in each.views}
        ids |= {name: manifest.query_id for name, manifest in frames.items()}
        specs = {each.name: manifests[each.name].spec(each.stream.spec) for each in plan.streams}
        opened = open_stores(plan, options, self.connection, ids, specs, ending)
        starter = Starter(
            self.spark,
            plan.app.name,
            self.connection,
            options,
            opened.writers,
            ending,
            self.on_batch,
            self.on_step,
        )
        starts = {each.name: starter.prepare(each, manifests[each.name]) for each in plan.streams}
        starts |= {
            frame_query(each.view.name): starter.prepare_frame(each, frames[each.view.name])
            for each in plan.frames
        }
        return Launched(opened, specs, starts)
