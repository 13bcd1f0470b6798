"""Headrace: a streaming-data platform in one package.

The names here are what an application is written with; they are loaded when they are
first used, so that the command line starts without them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.personal import Personal
    from headrace.sourcing import Happened, Rejected
    from headrace.streams import PROCESSING_TIME
    from headrace.streams.operators import agg, hopping, session, sliding, tumbling

__version__ = "0.1.0.dev0"
__all__ = [
    "PROCESSING_TIME",
    "App",
    "Happened",
    "Personal",
    "Rejected",
    "__version__",
    "agg",
    "hopping",
    "session",
    "sliding",
    "tumbling",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name == "App":
        from headrace.app import App

        return App
    if name == "Personal":
        from headrace.personal import Personal

        return Personal
    if name in ("Happened", "Rejected"):
        from headrace import sourcing

        return getattr(sourcing, name)
    if name == "PROCESSING_TIME":
        from headrace.streams import PROCESSING_TIME

        return PROCESSING_TIME
    if name in ("agg", "hopping", "session", "sliding", "tumbling"):
        from headrace.streams import operators

        return getattr(operators, name)
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
