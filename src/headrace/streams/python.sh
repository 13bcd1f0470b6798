#!/bin/sh
# The Python of Spark's workers on one machine; worker_python.py says why.
PYTHONPATH="${PYTHONPATH#*/py4j-*-src.zip:}"
export PYTHONPATH
exec "$HEADRACE_PYTHON" "$@"
