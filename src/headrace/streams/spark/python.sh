#!/bin/sh
# The Python of Spark's workers on one machine; worker_python.py says why.
PYTHONPATH="${PYTHONPATH##*/py4j-*-src.zip:}"
GLIBC_TUNABLES="${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1}"
export PYTHONPATH GLIBC_TUNABLES
exec "$HEADRACE_PYTHON" "$@"
