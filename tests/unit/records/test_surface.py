import subprocess
import sys

import headrace.records


def test_the_public_names_are_there():
    for name in headrace.records.__all__:
        assert getattr(headrace.records, name) is not None


def test_the_room_brings_neither_pyarrow_nor_numpy_nor_aiokafka_along():
    code = "import headrace.records, sys; print({'pyarrow', 'numpy', 'aiokafka'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
