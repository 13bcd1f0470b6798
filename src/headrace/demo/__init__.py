"""The demonstration: a small shop that lives, and is proved at the end.

`run` runs an ordinary application (`shop.py`) on an embedded log, sends it traffic with
late, duplicate, malformed and future-dated events from a process of its own, shows
results and corrections as they come, and ends with a batch recomputation of every view
from the log. It imports `app` and below, and nothing imports it but the command line.
"""

from headrace.demo.run import run

__all__ = ["run"]
