"""Which checkpoint a query goes on from, and when it starts over.

`manifest` says what a checkpoint was made by, `fit` whether an application still fits it, and
`checkpoints` decides. `shadow_build` rebuilds views while the old ones are served, `rescaling` changes
the number of buckets, `slots` the number of writing tasks; `at_url` keeps checkpoints in an object store.
"""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.app.query.checkpoint.at_url import FOLDER as FOLDER
    from headrace.app.query.checkpoint.at_url import UrlCheckpoints as UrlCheckpoints
    from headrace.app.query.checkpoint.at_url import entries as entries
    from headrace.app.query.checkpoint.at_url import newest_queries as newest_queries
    from headrace.app.query.checkpoint.at_url import reading_place as reading_place
    from headrace.app.query.checkpoint.at_url import refuse_local_stores as refuse_local_stores
    from headrace.app.query.checkpoint.checkpoints import BUCKETS as BUCKETS
    from headrace.app.query.checkpoint.checkpoints import discard as discard
    from headrace.app.query.checkpoint.checkpoints import done_so_far as done_so_far
    from headrace.app.query.checkpoint.checkpoints import goes_on_from as goes_on_from
    from headrace.app.query.checkpoint.checkpoints import ready_manifests as ready_manifests
    from headrace.app.query.checkpoint.checkpoints import side_progress as side_progress
    from headrace.app.query.checkpoint.derived_topics import build_of as build_of
    from headrace.app.query.checkpoint.derived_topics import record_sink_name as record_sink_name
    from headrace.app.query.checkpoint.fit import describe_graph as describe_graph
    from headrace.app.query.checkpoint.fit import graph_reasons as graph_reasons
    from headrace.app.query.checkpoint.manifest import FORMAT as FORMAT
    from headrace.app.query.checkpoint.manifest import Manifest as Manifest
    from headrace.app.query.checkpoint.manifest import SideProgress as SideProgress
    from headrace.app.query.checkpoint.rescaling import QueryState as QueryState
    from headrace.app.query.checkpoint.rescaling import Spread as Spread
    from headrace.app.query.checkpoint.rescaling import state_of_graph as state_of_graph
    from headrace.app.query.checkpoint.rescaling import with_buckets as with_buckets
    from headrace.app.query.checkpoint.shadow_build import ShadowBuild as ShadowBuild
    from headrace.app.query.checkpoint.shadow_build import StageTarget as StageTarget
    from headrace.app.query.checkpoint.shadow_build import beginning as beginning
    from headrace.app.query.checkpoint.shadow_build import has_come_to as has_come_to
    from headrace.app.query.checkpoint.shadow_build import rebuild_target as rebuild_target
    from headrace.app.query.checkpoint.shadow_build import stale_builds as stale_builds
    from headrace.app.query.checkpoint.slots import buckets_for as buckets_for
    from headrace.app.query.checkpoint.slots import fence_slots as fence_slots
    from headrace.app.query.checkpoint.slots import slot_name as slot_name
    from headrace.app.query.checkpoint.slots import with_slots as with_slots
    from headrace.app.query.checkpoint.spark_checkpoint import forget_unbegun as forget_unbegun
    from headrace.app.query.checkpoint.spark_checkpoint import last_begun as last_begun
    from headrace.app.query.checkpoint.spark_checkpoint import last_commit as last_commit
    from headrace.app.query.checkpoint.spark_checkpoint import last_position as last_position

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "at_url": "FOLDER UrlCheckpoints entries newest_queries reading_place refuse_local_stores",
        "checkpoints": "BUCKETS discard done_so_far goes_on_from ready_manifests side_progress",
        "derived_topics": "build_of record_sink_name",
        "fit": "describe_graph graph_reasons",
        "manifest": "FORMAT Manifest SideProgress",
        "rescaling": "QueryState Spread state_of_graph with_buckets",
        "shadow_build": ("ShadowBuild StageTarget beginning has_come_to rebuild_target stale_builds"),
        "slots": "buckets_for fence_slots slot_name with_slots",
        "spark_checkpoint": "forget_unbegun last_begun last_commit last_position",
    },
)
