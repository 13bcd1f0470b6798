"""The Python that Spark starts here has its PySpark from where pip put it, compiled once."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest

from headrace.streams.spark.worker_python import worker_python

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_workers_have_the_installed_pyspark_and_not_the_zipped_one(spark):
    def where(batches):
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"found": [pyspark.__file__], "python": [sys.executable]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(where, "found string, python string").collect()
    assert (row.found, row.python) == (pyspark.__file__, sys.executable)


def test_only_spark_s_own_zips_leave_the_path():
    given = worker_python({})
    path = "/spark/python/lib/pyspark.zip:/spark/python/lib/py4j-0.10.9.9-src.zip:/core.jar:/mine"
    twice = f"{path.removesuffix(':/mine')}:{path}"  # as the first process of a session has it
    cases = {path: "/core.jar:/mine", twice: "/core.jar:/mine", "/mine:/other": "/mine:/other", "": ""}
    for before, after in cases.items():
        command = [given["PYSPARK_PYTHON"], "-c", "import os; print(os.environ['PYTHONPATH'])"]
        surroundings = {**os.environ, **given, "PYTHONPATH": before}
        done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True)
        assert done.stdout == f"{after}\n"


@pytest.mark.parametrize("given", [None, "glibc.malloc.check=0"])
def test_large_pages_are_asked_for_unless_the_user_tunes_glibc_himself(given):
    python = worker_python({})
    surroundings = {name: text for name, text in os.environ.items() if name != "GLIBC_TUNABLES"} | python
    surroundings |= {"GLIBC_TUNABLES": given} if given else {}
    command = [python["PYSPARK_PYTHON"], "-c", "import os; print(os.environ['GLIBC_TUNABLES'])"]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (given or "glibc.malloc.hugetlb=1")


def test_another_spark_brings_its_own_pyspark():
    assert worker_python({"SPARK_HOME": "/opt/spark"}) == {}
    assert worker_python({"SPARK_HOME": str(Path(pyspark.__file__).parent)}) != {}
