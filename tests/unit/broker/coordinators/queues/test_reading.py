"""How much of the log a fetch of a queue reads: the batches that hold what it may be given."""

from uuid import UUID

from headrace.broker.coordinators.queues.reading import Enough
from headrace.groups.share import RecordRun, RecordState, SharePartition
from headrace.records import BatchHeader

CONTROL = 0x20


def header(first: int, last: int, *, records: int | None = None, attributes: int = 0) -> BatchHeader:
    count = last - first + 1 if records is None else records
    return BatchHeader(first, 100, 0, 2, 0, attributes, last - first, 0, 0, -1, -1, -1, count)


def window(*runs: tuple[int, int, RecordState]) -> SharePartition:
    found = tuple(RecordRun(first=first, last=last, state=state) for first, last, state in runs)
    return SharePartition(group_id="g", topic_id=UUID(int=1), partition=0, start_offset=0, runs=found)


def read(partition: SharePartition, records: int, *batches: BatchHeader) -> int:
    """How many batches are read until they are enough."""
    enough = Enough(partition.available(), records)
    return next((number for number, each in enumerate(batches, 1) if enough.after(each)), len(batches))


def test_new_records_are_read_until_there_are_as_many_as_were_asked_for():
    batches = [header(0, 9), header(10, 19), header(20, 29)]
    assert [read(window(), most, *batches) for most in (1, 10, 11, 30)] == [1, 1, 2, 3]


def test_records_that_somebody_holds_do_not_count():
    held = window(
        (0, 9, RecordState.ACQUIRED), (10, 11, RecordState.AVAILABLE), (12, 39, RecordState.ACQUIRED)
    )
    batches = [header(0, 19), header(20, 39), header(40, 49), header(50, 59)]
    assert [read(held, most, *batches) for most in (1, 2, 3, 12, 13)] == [1, 1, 3, 3, 4]


def test_offsets_without_a_record_and_markers_do_not_count():
    batches = [header(0, 99, records=2), header(100, 100, attributes=CONTROL), header(101, 101)]
    assert read(window(), 3, *batches) == 3


def test_what_is_available_in_a_batch_that_was_begun_before_is_counted_from_there():
    begun = window((0, 9, RecordState.ACQUIRED))
    assert read(begun, 6, header(0, 14), header(15, 15)) == 2
