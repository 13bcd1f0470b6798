"""Projections: views of an entity type's events, kept by the processes that serve the entities.

A projection is a pure function from a row and an event to the row after it (`projection.py`). One of the
serving processes reads the events and writes the rows, with the offsets that they reflect, to a view store
(`worker.py`), so that they are served, proved and waited for like the views of streams. Needs no Spark.
May import `client`, `views`, `records` and below.
"""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.sourcing.projections.projection import Projection as Projection
    from headrace.sourcing.projections.projection import make_projection as make_projection
    from headrace.sourcing.projections.projection import projection_group as projection_group
    from headrace.sourcing.projections.replay import replay_events as replay_events
    from headrace.sourcing.projections.replay import replayed_projection as replayed_projection
    from headrace.sourcing.projections.replay import traced_projection as traced_projection
    from headrace.sourcing.projections.rows import ProjectedRows as ProjectedRows
    from headrace.sourcing.projections.worker import ProjectionStart as ProjectionStart
    from headrace.sourcing.projections.worker import ProjectionWorker as ProjectionWorker

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "projection": "Projection make_projection projection_group",
        "replay": "replay_events replayed_projection traced_projection",
        "rows": "ProjectedRows",
        "worker": "ProjectionStart ProjectionWorker",
    },
)
