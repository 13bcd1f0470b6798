"""The demonstration: orders through a log, a Spark query and SQLite, checked at the end.

`run` starts the log and a producer in processes of their own, counts and sums the
orders of each minute with Spark, shows the table as it grows, and compares it with
what the producer was told is safe. It is an application like a user's: it imports
`streams` and `client`, and nothing imports it but the command line.
"""

from headrace.demo.run import DemoOptions, run

__all__ = ["DemoOptions", "run"]
