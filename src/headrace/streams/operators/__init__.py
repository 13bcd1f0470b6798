"""Windowed aggregation, column by column: pure functions of Arrow tables.

No Spark, no I/O, no clock: rows and a watermark come in, changes of results go out.
May import `errors` only.
"""

__all__: list[str] = []
