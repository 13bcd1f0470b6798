"""What all handlers of a console share: settings, threads, clients of the log, the application's files.

Blocking methods say so: call them through `workers.run`.
"""

from headrace.console.context.application import ApplicationFolder
from headrace.console.context.context import ConsoleContext
from headrace.console.context.log_clients import LogClients

__all__ = ["ApplicationFolder", "ConsoleContext", "LogClients"]
