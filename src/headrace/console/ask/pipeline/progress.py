"""How far the queries of an application are, as a read with a token needs to know it."""

from collections.abc import Collection
from functools import partial

from headrace.app.query import Manifest
from headrace.app.status import QueryDescription
from headrace.client import LATEST
from headrace.console.ask.pipeline.derivations import Derivations, Stage
from headrace.console.context import ConsoleContext
from headrace.console.push import Watch
from headrace.errors import RequestError
from headrace.streams.feed import stage_offsets

__all__ = ["builds_on_the_way", "ends_behind", "watch_progress"]

Positions = dict[str, dict[int, int]]


def builds_on_the_way(
    context: ConsoleContext, derivations: Derivations, reader: str, stages: Collection[Stage]
) -> dict[str, str] | None:
    """The ids of the queries from a write to its reader, by name; None while one reads what another replaces.

    Blocks for their manifests.
    """
    folder = context.application.path
    makers = {each.query.name: each.query for stage in stages for each in stage.makers}
    manifests = {}
    for query in (derivations.queries[reader], *makers.values()):
        manifest = None if folder is None else Manifest.read(folder / query.folder)
        if manifest is None:
            return None
        manifests[query.name] = manifest
    by_topic = {stage.topic: stage for stage in stages}
    for name, manifest in manifests.items():
        for topic in derivations.queries[name].reads:
            stage = by_topic.get(topic)
            for maker in () if stage is None else stage.makers:
                if maker.is_of_rows and not manifest.reads_records_of(manifests[maker.query.name]):
                    return None
    return {name: manifest.query_id for name, manifest in manifests.items()}


def watch_progress(context: ConsoleContext, query: QueryDescription, query_id: str) -> Watch[Positions]:
    """The watch that all who wait for this query share: everything that it makes of these is on the log."""
    interval_s = context.settings.poll_ms / 1000
    return context.watches.of(
        ("progress", query.name, query_id),
        lambda: Watch(partial(context.workers.run, _progress, context, query, query_id), interval_s),
    )


def _progress(context: ConsoleContext, query: QueryDescription, query_id: str) -> Positions:
    found = {}
    for topic, group in query.reads.items():
        if group:
            partitions = sorted(context.clients.layout(topic).leaders)
            with context.clients.group_offsets(group) as offsets:
                found[topic] = stage_offsets(offsets, topic, partitions, query_id)
    return found


def ends_behind(context: ConsoleContext, topic: str) -> dict[int, int]:
    """Behind everything on a topic, also records whose transaction has not ended yet. Blocks."""
    try:
        with context.clients.fetcher() as fetcher:
            return fetcher.offsets(topic, LATEST, committed=False)
    except RequestError:
        return {}  # there is no such topic: nothing was ever written to it
