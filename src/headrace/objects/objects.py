"""What every folder of objects promises."""

from collections.abc import Iterable, Sequence
from typing import Protocol

__all__ = ["Objects"]


class Objects(Protocol):
    """Objects below a URL, by names with slashes; from any thread.

    An object is there whole or not at all. What has been put is found, by its name and in lists,
    as soon as `put` has returned, from any machine: S3, GCS, Azure and HDFS promise that. Nothing
    can be put on a condition: who must not replace another's object gives it a name of its own.

    What the store refuses, or does not answer, is a RetriableError that names the object.
    """

    @property
    def url(self) -> str: ...

    def put(self, name: str, parts: Sequence[bytes]) -> None:
        """Puts the parts, one behind the other, as an object; one of that name is replaced."""
        ...

    def get(self, name: str) -> bytes | None:
        """The object; None if there is none."""
        ...

    def names(self, folder: str) -> list[str]:
        """The names of all objects below the folder, sorted; none if there is no such folder."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Removes those that are there."""
        ...
