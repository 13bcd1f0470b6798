"""The questions of `headrace.client` as a console asks them: on its own client, with little patience."""

from headrace.client.questions import Log
from headrace.console.problems import ProblemError
from headrace.console.surroundings import Surroundings

__all__ = ["log_of", "refuse_internal"]

_TIMEOUT_S = 5.0


def log_of(here: Surroundings) -> Log:
    """The log of this console; its answers block."""
    return Log(here.admin(), here.connection.bootstrap_servers, timeout_s=_TIMEOUT_S)


def refuse_internal(topic: str) -> None:
    """Raises ProblemError if the topic is one that the system keeps for itself."""
    if topic.startswith("__"):
        raise ProblemError(403, f"{topic} is kept by the system itself", "name a topic of your own")
