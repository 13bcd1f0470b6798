"""The console: an HTTP API over topics, groups, views and pipelines, and the page that uses it.

A process of its own, beside the log and the driver, that holds nothing which matters:
everything it shows is read from the log, from the stores of views and from what
`headrace run` leaves in its data folder. It may be killed and started again at any
time; subscribers resume where they were.

From top to bottom, each importing only what is below it:

- `server`: the process, the ASGI application, the guard, the audit log
- `routes`: every route once, with the role it needs, what it takes and what it answers
- `ask`: questions to the log, to view stores and to the application's files
- `api`: routes, parameters, schemas and the OpenAPI document, whatever they are about
- `context`: what all handlers share
- `push`, `write`: sending to subscribers, and writing to the log

The event loop never blocks: whatever waits for a disk or for the log runs on the bounded
threads of `workers.py`.

May import `app` (descriptions only), `views`, `client` and below; imports no pyspark.
"""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.console.server.app import build_app as build_app
    from headrace.console.server.process import Listening as Listening
    from headrace.console.server.process import run as run
    from headrace.console.settings import ConsoleSettings as ConsoleSettings
    from headrace.console.users import add_token as add_token
    from headrace.console.users import read_users as read_users
    from headrace.console.users import remove_token as remove_token

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "server.app": "build_app",
        "server.process": "Listening run",
        "settings": "ConsoleSettings",
        "users": "add_token read_users remove_token",
    },
)
