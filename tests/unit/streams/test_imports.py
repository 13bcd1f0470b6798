"""What importing a part of `streams` brings with it."""

import subprocess
import sys

import pytest

import headrace.streams


def test_importing_the_operators_imports_no_pyspark():
    program = "import sys, headrace.streams.operators; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_public_names_are_found_when_they_are_used():
    assert {name for name in headrace.streams.__all__ if getattr(headrace.streams, name) is None} == set()
    assert set(headrace.streams.__all__) <= set(dir(headrace.streams))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = headrace.streams.nothing
