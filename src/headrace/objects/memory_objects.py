"""Objects in this process's memory: the reference of what `Objects` promises."""

from collections.abc import Iterable, Sequence

__all__ = ["MemoryObjects"]


class MemoryObjects:
    """For tests."""

    url = "memory:"

    def __init__(self) -> None:
        self._found: dict[str, bytes] = {}

    def put(self, name: str, parts: Sequence[bytes]) -> None:
        self._found[name] = b"".join(parts)

    def get(self, name: str) -> bytes | None:
        return self._found.get(name)

    def names(self, folder: str) -> list[str]:
        return sorted(name for name in self._found if name.startswith(f"{folder}/"))

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._found.pop(name, None)
