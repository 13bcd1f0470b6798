"""The child processes of a run: the embedded log, and the sidecars (console, deliverer of hooks).

Each is restarted when it dies, until the application stops.
"""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.app.processes.embedded_log import EmbeddedLog as EmbeddedLog
    from headrace.app.processes.sidecars import free_address as free_address
    from headrace.app.processes.supervisor import error_in as error_in

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "embedded_log": "EmbeddedLog",
        "sidecars": "free_address",
        "supervisor": "error_in",
    },
)
