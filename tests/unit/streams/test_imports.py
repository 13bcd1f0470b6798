"""What importing a part of `streams` brings with it."""

import subprocess
import sys

import pytest

import headrace.streams


def test_importing_the_operators_imports_no_pyspark():
    program = "import sys, headrace.streams.operators; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("looked_at", "not_needed"),
    [
        ("headrace.streams.feed.feed", ["pandas", "pyarrow.compute", "headrace.streams.operators"]),
    ],
)
def test_what_spark_only_looks_at_before_the_first_batch_imports_little(looked_at, not_needed):
    program = f"import sys, {looked_at}; print([each for each in {not_needed} if each in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_public_names_are_found_when_they_are_used():
    assert {name for name in headrace.streams.__all__ if getattr(headrace.streams, name) is None} == set()
    assert set(headrace.streams.__all__) <= set(dir(headrace.streams))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = headrace.streams.nothing
