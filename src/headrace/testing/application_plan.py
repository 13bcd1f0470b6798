"""The plan of an application under test: without Spark where it can be had so."""

from typing import TYPE_CHECKING, Any

from headrace.app.application import App, View
from headrace.app.plans import PlannedStream, plan_stream, stream_of, topics_used
from headrace.app.stream import Aggregation, Stream
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["plan_for_test"]

_GIVE_SPARK = (
    'give one: run_app(app, spark=local_spark("tests")), with local_spark from headrace.streams, '
    "best made once for all tests"
)


def plan_for_test(app: App, spark: "SparkSession | None") -> tuple[PlannedStream, ...]:
    """The streams of an application with their views; raises ConfigError if it needs a Spark and has none."""
    if spark is not None:
        from headrace.app.planning import plan_app

        return plan_app(app, spark).streams
    if not app.views:
        raise ConfigError(f"application {app.name!r} has no views and no topics; declare one with @app.view")
    results = {name: (view, _result(view)) for name, view in app.views.items()}
    return tuple(plan_stream(app.streams[topic], results) for topic in topics_used(app, results))


def _result(view: View) -> Aggregation | Stream:
    try:
        result: Any = view.function()
    except Exception as error:
        if type(error).__module__.startswith("pyspark"):
            raise ConfigError(
                f"view {view.name!r} uses PySpark and there is no Spark; {_GIVE_SPARK}"
            ) from error
        raise
    if not isinstance(result, (Aggregation, Stream)):
        raise ConfigError(
            f"view {view.name!r} returns {type(result).__name__}; return a stream or the result of "
            ".window(…).agg(…). Views of plain DataFrames are tested on a log, with headrace.app.running"
        )
    if stream_of(result).steps:
        raise ConfigError(
            f"view {view.name!r} has where, select or with_columns, which Spark computes; {_GIVE_SPARK}"
        )
    return result
