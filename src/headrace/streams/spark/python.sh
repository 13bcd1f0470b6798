#!/bin/sh
# The Python of Spark's workers on one machine; worker_python.py says why, planners.py what is forked.
PYTHONPATH="${PYTHONPATH##*/py4j-*-src.zip:}"
GLIBC_TUNABLES="${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1}"
export PYTHONPATH GLIBC_TUNABLES
case "$HEADRACE_PLANNERS:$*" in
    :*) ;;
    *:"-m pyspark.sql.streaming.python_streaming_source_runner" | *:"-m pyspark.daemon pyspark.sql.worker."*)
        shift
        exec "$HEADRACE_PYTHON" -I -S "${0%/*}/planner.py" "$HEADRACE_PLANNERS" "$@" ;;
esac
exec "$HEADRACE_PYTHON" "$@"
