"""The console: an HTTP API over topics, groups, views and pipelines, and the page that uses it.

A process of its own, beside the log and the driver, that holds nothing which matters:
everything it shows is read from the log, from the stores of views and from what
`headrace run` leaves in its data folder. It may be killed and started again at any
time; whoever was subscribed resumes where they were.

`table.py` lists every route once, with the role it needs, what it takes and what it
answers; the application (`app.py`), the checks of parameters (`routing.py`) and the
OpenAPI document (`openapi.py`) all come from that table. The event loop never blocks:
whatever waits for a disk or for the log runs on the bounded threads of `workers.py`.

May import `app` (descriptions only), `views`, `client` and below; imports no pyspark.
"""

from headrace.console.app import build_app
from headrace.console.process import run
from headrace.console.settings import ConsoleSettings

__all__ = ["ConsoleSettings", "build_app", "run"]
