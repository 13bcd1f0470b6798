"""The application as it runs: its graph with what moves in it, and how far its queries are."""

from headrace.console.ask.pipeline.derivations import Derivations, Maker, Stage
from headrace.console.ask.pipeline.pipeline import pipeline_watch, sample_of_node
from headrace.console.ask.pipeline.progress import builds_on_the_way, ends_behind, watch_progress

__all__ = [
    "Derivations",
    "Maker",
    "Stage",
    "builds_on_the_way",
    "ends_behind",
    "pipeline_watch",
    "sample_of_node",
    "watch_progress",
]
