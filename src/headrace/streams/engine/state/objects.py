"""A bucket's log in an object store, where nothing can be renamed and no two machines share a folder.

An entry is an object of its own, named by stage, bucket, batch and token, so that no attempt
replaces what another has put. Which entry is that of batch n - 1 is not found out by a list: the
record of batch n (`checkpoint_records`), which the driver puts before the batch is carried out, has the
token that the batch before it ended with, and every entry has that of the one it was made from.
An attempt that is forgotten, or the worker of a driver that has been replaced, puts entries that
nobody will ask for.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from headrace.crash_points import reached
from headrace.errors import CorruptionError
from headrace.objects import Objects
from headrace.streams.engine.messages import decode_json, encode_json
from headrace.streams.engine.state.entries import decode_entry, encode_entry, whose
from headrace.streams.engine.state.log import Head

__all__ = ["BucketObjects", "Receipt", "bucket_name", "bucket_of", "read_receipts", "state_folder"]

_MOST_HEADS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What the driver is told of an entry that has been put: its token, and for onlookers what it holds.

    `bytes` are those of all entries that count, `held` is that of the head, and `put_ms` the time it took.
    """

    token: str
    bytes: int
    held: Sequence[Mapping[str, Any]]
    put_ms: float


def read_receipts(blob: bytes) -> dict[str, Receipt]:
    """By stage and bucket."""
    return {place: Receipt(**each) for place, each in decode_json(blob).items()}


def state_folder(query: str) -> str:
    """Where the entries of a query are: nowhere does another query look for its own there."""
    return f"state/{query}"


def bucket_name(stage: int, bucket: int) -> str:
    """A bucket among those of a query."""
    return f"{stage}/{bucket}"


def bucket_of(name: str) -> str:
    """The bucket that an entry is of, by the name of its object."""
    _, _, stage, bucket, _ = name.split("/")
    return f"{stage}/{bucket}"


class BucketObjects:
    """The entries of one bucket as batch `batch` finds them: the one before it has the token `made_from`.

    For one attempt of one batch.
    """

    # The heads of entries that this process has put, by token: they need not be read again.
    _heads: ClassVar[dict[str, Head]] = {}

    def __init__(
        self, objects: Objects, query: str, stage: int, bucket: int, *, batch: int, made_from: str
    ) -> None:
        self.query = query
        self.receipt: bytes | None = None
        self._objects = objects
        self._bucket = bucket_name(stage, bucket)
        self._folder = f"{state_folder(query)}/{self._bucket}"
        self._last = batch - 1
        self._token = made_from
        self._found: dict[int, tuple[Head, list[bytes]]] = {}

    def head(self, number: int) -> Head:
        own = self._heads.get(self._token) if number == self._last else None
        return self.entry(number)[0] if own is None else own

    def entry(self, number: int) -> tuple[Head, list[bytes]]:
        """Found by walking back from the last one: each names the one before it."""
        while number not in self._found:
            first = min(self._found, default=self._last + 1)
            token = self._found[first][0].made_from if self._found else self._token
            self._found[first - 1] = self._fetched(first - 1, token)
        return self._found[number]

    def put(self, head: Head, blobs: Sequence[bytes]) -> None:
        reached("state written")
        began = time.monotonic()
        self._objects.put(self._name(head.number, head.token), encode_entry(head, blobs))
        put_ms = 1000 * (time.monotonic() - began)
        receipt = Receipt(
            token=head.token,
            bytes=head.snapshot_bytes + head.delta_bytes,
            held=head.held,
            put_ms=round(put_ms, 1),
        )
        self.receipt = encode_json({self._bucket: asdict(receipt)})
        self._heads[head.token] = head
        while len(self._heads) > _MOST_HEADS:
            del self._heads[next(iter(self._heads))]
        reached("state renamed")

    def remove_before(self, number: int) -> None:
        names = self._objects.names(self._folder)
        self._objects.remove([each for each in names if _number_of(each) < number])

    def _name(self, number: int, token: str) -> str:
        return f"{self._folder}/{number:012}.{token}"

    def _fetched(self, number: int, token: str) -> tuple[Head, list[bytes]]:
        name = self._name(number, token)
        data = self._objects.get(name)
        try:
            if data is None:
                raise ValueError("it is not there")
            head, blobs = decode_entry(data, self.query)
            if (head.number, head.token) != (number, token):
                raise ValueError(f"it is that of batch {head.number} with token {head.token}")
        except LookupError as owner:
            raise CorruptionError(whose(number, str(owner.args[0]), self.query)) from None
        except ValueError as error:
            raise CorruptionError(
                f"the state behind batch {number}, {name} at {self._objects.url}, is not what was written: "
                f"{error}; rebuild the views from the log (headrace run --rebuild)"
            ) from None
        return head, blobs


def _number_of(name: str) -> int:
    return int(name.rpartition("/")[2].partition(".")[0])
