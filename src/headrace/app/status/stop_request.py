"""Somebody asks a running driver to come to rest: a file in its data folder, or an object at its URL.

A driver that runs looks for it. One that starts forgets what was asked before: whoever asks repeats it
until the driver has stopped.
"""

import contextlib
from pathlib import Path

from headrace.errors import RetriableError
from headrace.objects import Objects

__all__ = ["forget_request", "is_requested", "request_stop", "requested_at"]

NAME = "stop.request"


def request_stop(place: Path | Objects) -> None:
    """Asks whoever runs on this folder, or at this URL."""
    if isinstance(place, Path):
        (place / NAME).touch()
    else:
        place.put(NAME, [b"stop"])


def is_requested(data: Path) -> bool:
    """Whether the driver of this folder is asked to come to rest."""
    return (data / NAME).exists()


def requested_at(objects: Objects, data: Path) -> None:
    """Brings a request from a URL to the driver's folder, where it is looked for."""
    if objects.get(NAME):
        request_stop(data)


def forget_request(data: Path, objects: Objects | None = None) -> None:
    """For a driver that starts, and one that has stopped."""
    (data / NAME).unlink(missing_ok=True)
    if objects is not None:
        with contextlib.suppress(RetriableError):  # the store is away: it is repeated, or grows old
            objects.remove([NAME])
