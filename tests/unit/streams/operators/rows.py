"""Small tables of rows for the tests of operators."""

import pyarrow as pa

MINUTE = 60_000_000


def table_of(times, watermark=None, partition=0, **columns):
    """Rows at these event times (µs), with these columns."""
    count = len(times)
    return pa.table(
        {
            **columns,
            "_partition": pa.array([partition] * count, pa.int32()),
            "_offset": pa.array(range(count), pa.int64()),
            "_event_time": pa.array(times, pa.int64()),
            "_watermark": pa.array([watermark] * count, pa.int64()),
        }
    )


def closed(operator, *tables):
    """The results when all rows came, each table in a batch of its own, and everything is closed."""
    state = operator.new_state()
    for each in tables:
        state.advance([operator.partial(each)], None)
    changes = state.advance([], 1 << 60).changes
    return changes.to_pylist()
