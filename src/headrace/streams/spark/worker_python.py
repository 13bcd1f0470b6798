"""The Python that Spark starts on this machine: this one, with PySpark as it is installed.

Spark puts the zipped sources of PySpark in front of the path of every Python process that
it starts. Sources in a zip are compiled each time, which takes most of a second of
processor time, in each of half a dozen processes before the first batch of a session and
in two before that of any query. `python.sh` takes the zips off the path, so that the same
PySpark comes from where pip put it, compiled once.

It also has glibc ask for large pages. Reading and parsing gather bytes from all over some
megabytes, column after column, and with pages of 4 KiB most of such a gather is looking
up pages. Elsewhere than on Linux with glibc nobody looks at the variable.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark

__all__ = ["given_python", "worker_python"]

_SCRIPT = Path(__file__).with_name("python.sh")


def worker_python(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that make Spark start its Python so; none if it is not the Spark beside this PySpark."""
    given = os.environ if environment is None else environment
    installed = str(Path(pyspark.__file__).parent)
    if given.get("SPARK_HOME", installed) != installed or not os.access(_SCRIPT, os.X_OK):
        return {}
    script = str(_SCRIPT)
    return {"HEADRACE_PYTHON": sys.executable, "PYSPARK_PYTHON": script, "PYSPARK_DRIVER_PYTHON": script}


def given_python(environment: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """The variables with which a user has chosen the Python of workers, to be kept.

    The settings stand for the variables, and before them, as they do for `spark-submit`: who starts
    Spark otherwise finds that it looks at the variables alone.
    """
    chosen = {
        "PYSPARK_PYTHON": settings.get("spark.pyspark.python") or environment.get("PYSPARK_PYTHON"),
        "PYSPARK_DRIVER_PYTHON": settings.get("spark.pyspark.driver.python")
        or environment.get("PYSPARK_DRIVER_PYTHON"),
    }
    return {name: python for name, python in chosen.items() if python}
