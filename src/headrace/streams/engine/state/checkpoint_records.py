"""What a batch is made from, in one object: the record that its driver puts before carrying it out.

A record has Spark's own files, which say what the batch reads, and the tokens of the state that it
builds on. It is all that another machine needs to carry the batch out, again or for the first time,
so a query's newest record is its checkpoint. That batch n - 1 is done is said by the record of batch
n: after a failure the last batch is repeated, and finds everywhere that it has been there. Where a query
comes to rest behind batch n - 1, its record of batch n does not say what that reads.

A record is named by query, batch and epoch, a number that every run of an application gets from the
log when it takes over from the run before (`headrace.app.run.ownership`). Two runs never write the
same object, and the newest record is that of the highest batch in the highest epoch. Why a driver
that has been replaced cannot do harm, though nothing is put on a condition:

- it puts the record of batch n, then asks the log whether it still owns the application, and only
  then carries the batch out and writes to views and topics;
- its successor takes over, and only then looks for the newest record.

So if the old one was told that it is the owner, its record was there when the successor looked: the
successor repeats batch n as it is, and both write the same under the same number. Otherwise it stops
before it has written anything that counts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from headrace.checked_json import decode_fields, encode_fields
from headrace.crash_points import reached
from headrace.errors import CorruptionError
from headrace.objects import Objects, open_objects
from headrace.streams.engine.messages import BlobKind
from headrace.streams.engine.state.objects import (
    BucketObjects,
    Receipt,
    bucket_name,
    bucket_of,
    read_receipts,
    state_folder,
)
from headrace.streams.engine.state.report import BucketState, held_state

__all__ = [
    "MANIFEST",
    "CheckpointRecord",
    "CheckpointRecords",
    "StateAtUrl",
    "newest_record",
    "put_record",
    "record_at_rest",
    "record_name",
    "recorded",
    "restore",
]

FORMAT = 1
MANIFEST = "manifest"  # what manifests are named by, where records are named by their query
M = TypeVar("M", bound=tuple[Any, ...])  # a message, which ends with its kind and its blob
_KEPT = 3  # records of a query; the newest is all that is needed


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecord:
    """`files` are those of Spark's checkpoint by name; `tokens` those of batch n - 1 by stage and bucket."""

    query: str
    batch: int
    epoch: int
    files: Mapping[str, str]
    tokens: Mapping[str, str]
    format: int = FORMAT

    @property
    def name(self) -> str:
        return record_name(self.query, self.batch, self.epoch)

    def encode(self) -> bytes:
        return encode_fields(asdict(self))


def record_name(query: str, batch: int, epoch: int) -> str:
    """Where a record is, in the folder of its query's."""
    return f"{query}.{batch:012}.{epoch:08}"


def newest_record(objects: Objects, folder: str, query: str) -> CheckpointRecord | None:
    """The record to go on from; None before the first. Who asks has taken the application over.

    Raises CorruptionError if it is damaged. One that is empty was never completed, and so never used.
    """
    parts = [name.rpartition("/")[2].split(".") for name in objects.names(folder)]
    found = [
        (int(epoch), int(batch))
        for owner, batch, epoch in (each for each in parts if len(each) == 3)
        if owner == query
    ]
    for epoch, batch in sorted(found, reverse=True):
        data = objects.get(f"{folder}/{record_name(query, batch, epoch)}")
        if data:
            return _decoded(data, folder, objects.url)
    return None


def _decoded(data: bytes, folder: str, url: str) -> CheckpointRecord:
    try:
        fields: dict[str, Any] = decode_fields(data, ()).fields
        if fields["format"] > FORMAT:
            raise ValueError(
                f"it was written by a newer version (format {fields['format']}, known is {FORMAT})"
            )
        return CheckpointRecord(**fields)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(
            f"the newest record in {folder} at {url} cannot be used: {error}; rebuild the views from the log "
            "(headrace run --rebuild)"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateAtUrl:
    """Where workers find the state of a query, batch after batch; the driver sends it to them.

    `folder` is that of the query's records, below the URL.
    """

    url: str
    folder: str
    query: str
    epoch: int

    def logs(self, stage: int, batch: int) -> Callable[[int], BucketObjects]:
        """The log of each bucket as the batch finds it, by what its record says."""
        objects, name = open_objects(self.url), record_name(self.query, batch, self.epoch)
        data = objects.get(f"{self.folder}/{name}")
        if not data:
            raise CorruptionError(
                f"the record of batch {batch}, {self.folder}/{name} at {self.url}, is not there: see that "
                "all machines use the same endpoint, and that nobody removes objects"
            )
        tokens = _decoded(data, self.folder, self.url).tokens

        def log(bucket: int) -> BucketObjects:
            made_from = tokens.get(bucket_name(stage, bucket), "")
            return BucketObjects(objects, self.query, stage, bucket, batch=batch, made_from=made_from)

        return log


class CheckpointRecords:
    """The records of one query, as its driver puts them, in whatever runs of Spark's query; for one thread.

    `checkpoint` is the folder on this machine in which Spark keeps its own files, and `restored` the
    record that they were restored from. `held` is what the last batch of this run has left.
    """

    def __init__(
        self,
        state: StateAtUrl,
        checkpoint: Path,
        require_owner: Callable[[], None],
        restored: CheckpointRecord | None,
    ) -> None:
        self.state = state
        self._checkpoint = checkpoint
        self._require_owner = require_owner
        self._tokens: dict[int, Mapping[str, str]] = {-1: {}}  # of the last two batches that were done
        if restored is not None:
            self._tokens = {restored.batch - 1: restored.tokens}
        self._is_tidy = False
        self.held: HeldAtUrl | None = None

    def begin(self, batch: int) -> None:
        """Before a batch is carried out: its record is there, and this run was still the owner then."""
        state, objects = self.state, open_objects(self.state.url)
        if batch - 1 not in self._tokens:
            raise CorruptionError(
                f"Spark begins batch {batch} of query {state.query}, but what batch {batch - 1} has left is "
                "not known; stop the run and start it again"
            )
        record = CheckpointRecord(
            query=state.query,
            batch=batch,
            epoch=state.epoch,
            files=spark_files(self._checkpoint, batch),
            tokens=self._tokens[batch - 1],
        )
        put_record(objects, state.folder, record)
        reached("record put")
        self._require_owner()
        objects.remove([f"{state.folder}/{record_name(state.query, batch - _KEPT, state.epoch)}"])
        if not self._is_tidy:
            self._is_tidy = True
            remove_earlier(objects, state, record.tokens)

    def rest(self) -> None:
        """Behind a batch that is done, when no other will be begun: nothing has to be repeated."""
        state, batch = self.state, max(self._tokens) + 1
        record = record_at_rest(state.query, self._checkpoint, batch, state.epoch, self._tokens[batch - 1])
        put_record(open_objects(state.url), state.folder, record)
        self._require_owner()

    def end(self, batch: int, receipts: Iterable[bytes]) -> None:
        """The batch is done: its output is everywhere. The receipts are those of all its buckets."""
        found = {place: each for blob in receipts for place, each in read_receipts(blob).items()}
        tokens = {place: each.token for place, each in found.items()}
        before = self._tokens[batch - 1]
        if before and before.keys() != tokens.keys():
            raise CorruptionError(
                f"batch {batch} of query {self.state.query} has left {len(tokens)} buckets, and the one "
                f"before it {len(before)}; stop the run and start it again"
            )
        self._tokens = {batch - 1: before, batch: tokens}
        self.held = HeldAtUrl(batch=batch, receipts=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAtUrl:
    """What a batch has left of state, for onlookers."""

    batch: int
    receipts: Mapping[str, Receipt]

    @property
    def put_ms(self) -> float | None:
        """The longest that the state of a bucket took to be put; None if there is none."""
        return max((each.put_ms for each in self.receipts.values()), default=None)

    def by_stage(self) -> dict[int, list[BucketState]]:
        """The buckets of each stage, as `read_buckets` has those of a folder."""
        found: dict[int, list[BucketState]] = {}
        for place, each in self.receipts.items():
            stage, bucket = map(int, place.split("/"))
            states = tuple(map(held_state, each.held))
            found.setdefault(stage, []).append(BucketState(bucket, self.batch, each.bytes, states))
        return {stage: sorted(each, key=lambda state: state.bucket) for stage, each in found.items()}


class Receipts:
    """Those of one batch, which come among its messages."""

    def __init__(self) -> None:
        self.found: list[bytes] = []

    def apart(self, messages: Iterable[M]) -> Iterator[M]:
        """The other messages; the receipts are kept."""
        for message in messages:
            if message[-2] is BlobKind.STATE:
                self.found.append(message[-1])
            else:
                yield message


@contextmanager
def recorded(records: CheckpointRecords | None, batch: int) -> Iterator[Receipts]:
    """Within, a batch is carried out and put out: its record is there before, its receipts are kept after."""
    if records is not None:
        records.begin(batch)
    receipts = Receipts()
    yield receipts
    if records is not None:
        records.end(batch, receipts.found)


def put_record(objects: Objects, folder: str, record: CheckpointRecord) -> None:
    """Puts it where `newest_record` finds it."""
    objects.put(f"{folder}/{record.name}", [record.encode()])


def record_at_rest(
    query: str, checkpoint: Path, batch: int, epoch: int, tokens: Mapping[str, str]
) -> CheckpointRecord:
    """The record of the batch that comes next, which says what it reads only if it was begun."""
    return CheckpointRecord(
        query=query,
        batch=batch,
        epoch=epoch,
        files=spark_files(checkpoint, batch, is_begun=(checkpoint / "offsets" / str(batch)).exists()),
        tokens=tokens,
    )


def spark_files(checkpoint: Path, batch: int, *, is_begun: bool = True) -> dict[str, str]:
    """What Spark needs of its files, by name, to carry out this batch elsewhere.

    It looks for the offsets of two batches, the last that it knows of and the one before that.
    """
    last = batch if is_begun else batch - 1
    names = ["metadata", *(f"offsets/{each}" for each in (last, last - 1) if each >= 0)]
    if batch:
        names.append(f"commits/{batch - 1}")
    return {name: (checkpoint / name).read_text() for name in names}


def restore(record: CheckpointRecord, checkpoint: Path) -> None:
    """Puts Spark's files of the record into an empty folder."""
    for name, text in record.files.items():
        path = checkpoint / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def remove_earlier(objects: Objects, state: StateAtUrl, tokens: Mapping[str, str]) -> None:
    """Removes what earlier runs have left of this query, and of those that it has replaced.

    Its first record is there, so nobody will ask for theirs; nor for buckets that are not in `tokens`.
    """
    for name in objects.names(state.folder):
        owner, _, rest = name.rpartition("/")[2].partition(".")
        epoch = int(rest.rpartition(".")[2])
        if epoch < state.epoch:
            objects.remove([name])
            if owner not in (state.query, MANIFEST):
                objects.remove(objects.names(state_folder(owner)))
    if tokens:
        kept = objects.names(state_folder(state.query))
        objects.remove([each for each in kept if bucket_of(each) not in tokens])
