"""Spark's daemon of Python workers, with everything they need imported before it forks them.

Spark starts this module instead of its own (`spark.python.daemon.module`). A worker then
begins its first task at once instead of importing for most of a second of processor time;
and since Spark collects garbage after every task, what was imported is put out of the
collector's sight, which saves some thirty milliseconds a task.
"""

import gc
import importlib

from pyspark.daemon import manager

__all__: list[str] = []

_NEEDED = (
    "pandas",
    "pyspark.sql.pandas.serializers",
    "pyspark.worker",
    "headrace.streams.engine.packers",
    "headrace.streams.engine.stage",
    "headrace.streams.feed.feed",
    "headrace.streams.feed.reader",
)

if __name__ == "__main__":
    for name in _NEEDED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    manager()
