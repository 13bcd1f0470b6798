"""Names of topics in the API: the parameter, and which names a request may use."""

import re

from headrace.console.api import Parameter
from headrace.console.problems import ProblemError

__all__ = ["TOPIC", "TOPIC_NAME", "refuse_internal"]

TOPIC = Parameter(name="topic", place="path", help="Name of the topic.", example="orders")
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


def refuse_internal(topic: str, next_step: str = "use another topic") -> None:
    """Raises ProblemError if the topic is one that the system keeps for itself."""
    if topic.startswith("__"):
        raise ProblemError(403, f"{topic} is an internal topic", next_step)
