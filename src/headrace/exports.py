"""Names that a package offers and loads when they are first used, so that importing it stays cheap.

A package whose modules import something heavy (pyspark, numpy, a web server) lists what it offers
under `TYPE_CHECKING`, for people and type checkers, and by module for `lazily`:

    if TYPE_CHECKING:
        from headrace.room.things import Thing as Thing
        from headrace.room.things import make_thing as make_thing

    __getattr__, __dir__, __all__ = lazily(__name__, {"things": "Thing make_thing"})
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazily"]


def lazily(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """A package's `__getattr__`, `__dir__` and `__all__`, from the names of each of its modules."""
    home = {name: module for module, names in homes.items() for name in names.split()}
    offered = sorted(home)

    def getattr_(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{home[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return getattr_, lambda: offered, offered
