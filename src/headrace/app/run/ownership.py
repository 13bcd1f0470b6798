"""One run of an application at a time on a log, from whatever folder and machine: the newest.

Who starts an application takes over its name: a transaction under the name's own
transactional id, which the broker gives to one producer at a time, says who runs it now
(`TransactionalWriter`: a committed offset with a note, and a record of `headrace-batches`).
Then it opens the producers of all its queries, which fences those of the run before it.
That one may open them again after a failure; but who opens one looks who owns the
application before it writes, and so nothing is written by two.

Each run has an epoch, higher than that of the run before it: what is put into an object store,
where nobody is fenced, is named by it.
"""

import contextlib
import json
import os
import socket
import threading
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from headrace.client import Connection, GroupOffsets
from headrace.client.write import BATCHES_TOPIC, TransactionalWriter
from headrace.errors import FencedError, HeadraceError

__all__ = ["Owner", "OwnerCheck", "Ownership"]

_LOOK_TIMEOUT_MS = 500
_NOBODY = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A run: where, and which process."""

    data: str
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    epoch: int = 0

    def __str__(self) -> str:
        return f"{self.data} (process {self.pid} on {self.host})"

    def is_elsewhere(self, other: "Owner") -> bool:
        """Whether the lock of the folder does not keep the two apart."""
        return (self.data, self.host) != (other.data, other.host)

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Owner | None":
        """The owner of that text; None if there is none, or it was given back."""
        try:
            return cls(**json.loads(text.rstrip("\0")))  # librdkafka sends C's end of the text along
        except (ValueError, TypeError):
            return None


class Ownership:
    """That of one run; from any thread."""

    def __init__(self, connection: Connection, app: str, data: Path | str) -> None:
        self.app = app
        self.owner = Owner(data=str(data.resolve() if isinstance(data, Path) else data))
        self._connection = connection
        self._producer = TransactionalWriter(connection, f"{app}:run")
        self._patient = _Note(connection, self._producer.name)
        self._hasty = _Note(replace(connection, retry_timeout_ms=_LOOK_TIMEOUT_MS), self._producer.name)
        self._has_claimed = False

    @property
    def has_claimed(self) -> bool:
        return self._has_claimed

    def claim(self, highest_epoch: Callable[[], int] = lambda: 0) -> Owner | None:
        """Takes the application over; the owner before, if it is elsewhere and did not give it back.

        Only once: who has been taken over from since is fenced (FencedError). `highest_epoch` says
        which epochs were used as far as anything kept elsewhere shows: the log forgets them after
        a week, and when an application is given back.
        """
        if self._has_claimed:
            self.require()
            return None
        self._has_claimed = True
        self._producer.take_over()
        before = self._patient.read()
        known = 0 if before is None else before.epoch
        # Nobody else takes the same one: who was fenced since then cannot commit it.
        self.owner = replace(self.owner, epoch=max(known, highest_epoch()) + 1)
        self._producer.transact((), self.owner.to_text(), 0)
        return before if before is not None and before.is_elsewhere(self.owner) else None

    def require(self) -> None:
        """Raises FencedError if a newer run has taken over, RetriableError if the log does not say.

        A log that is not ready is waited for, as everywhere before something is written.
        """
        _require(self.app, self.owner.run, self._patient.read())

    def look(self) -> None:
        """As `require`, for who must not be held up: a log that is not ready is soon given up."""
        _require(self.app, self.owner.run, self._hasty.read())

    def release(self) -> None:
        """Gives it back, unless somebody took it; harmless when repeated."""
        with contextlib.suppress(HeadraceError):  # fenced, or the log is away: nothing to give back
            if self._producer.is_open:
                self._producer.transact((), _NOBODY, 0)
        self._producer.close()
        self._patient.close()
        self._hasty.close()

    @property
    def check(self) -> "OwnerCheck":
        """`require`, for other processes of this run."""
        return OwnerCheck(self._connection, self.app, self.owner.run, self._producer.name)


class _Note:
    """Who the log says is the owner; from any thread."""

    def __init__(self, connection: Connection, group: str) -> None:
        self._group = GroupOffsets(connection, group)
        self._lock = threading.Lock()

    def read(self) -> Owner | None:
        """As the log has it; None also where the log has forgotten, as it does of groups after a week."""
        with self._lock:
            return _owner(self._group)

    def close(self) -> None:
        with self._lock:
            self._group.close()


@dataclass(frozen=True, slots=True)
class OwnerCheck:
    """Raises FencedError when called if the application is not this run's any more; plain data."""

    connection: Connection
    app: str
    run: str
    group: str

    def __call__(self) -> None:
        with GroupOffsets(self.connection, self.group) as group:
            _require(self.app, self.run, _owner(group))


def _owner(group: GroupOffsets) -> Owner | None:
    found = group.fetch(BATCHES_TOPIC, [0])
    return Owner.from_text(found[0].metadata) if 0 in found else None


def _require(app: str, run: str, now: Owner | None) -> None:
    if now is not None and now.run != run:
        raise FencedError(
            f"application {app!r} was started in {now} and runs there from now on, so this run "
            "stops; to run both on one log, give one of them another name"
        )
