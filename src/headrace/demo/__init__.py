"""The demo: a small shop with live traffic, whose views are verified at the end.

`run` supervises real processes: an embedded log, an ordinary application (`shop.py`) under
`headrace run`, and a Kafka client that sends it traffic with late, duplicate, skewed,
malformed and future-dated events. It shows results and corrections as they come, and ends
with a batch recomputation of every view from the log. It imports no Spark itself. May
import `app` and below; only the command line imports it.
"""

from headrace.demo.run import run

__all__ = ["run"]
