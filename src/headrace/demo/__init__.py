"""The demonstration: a small shop that lives, and is proved at the end.

`run` keeps real processes alive: an embedded log, an ordinary application (`shop.py`) under
`headrace run`, and a Kafka client that sends it traffic with late, duplicate, skewed,
malformed and future-dated events. It shows results and corrections as they come, and ends
with a batch recomputation of every view from the log. It imports no Spark itself. May
import `app` and below; nothing imports it but the command line.
"""

from headrace.demo.run import run

__all__ = ["run"]
