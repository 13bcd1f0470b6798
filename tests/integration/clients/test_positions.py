"""List-offsets and seeking by time."""

import time
from collections.abc import Callable

import pytest
from kio.schema.errors import ErrorCode

from clients.driver import Driver, DriverError, Message

BASE_MS = int(time.time() * 1000) - 3_600_000  # recent, or retention would rightly remove the records


@pytest.fixture
def minutes(client: Driver, new_topic: Callable[..., str]) -> str:
    """A topic with ten batches of three records; each batch a minute later than the one before."""
    topic = new_topic()
    for minute in range(10):
        times = [BASE_MS + minute * 60_000 + second * 1000 for second in range(3)]
        client.produce(topic, [Message(value=str(t).encode(), partition=0, timestamp_ms=t) for t in times])
    return topic


def test_earliest_and_latest_are_the_ends_of_the_log(client: Driver, minutes: str):
    assert client.offset(minutes, 0, "earliest").offset == 0
    assert client.offset(minutes, 0, "latest").offset == 30


def test_an_empty_partition_starts_and_ends_at_zero(client: Driver, new_topic: Callable[..., str]):
    topic = new_topic()
    assert client.offset(topic, 0, "earliest").offset == 0
    assert client.offset(topic, 0, "latest").offset == 0
    assert client.offset(topic, 0, BASE_MS).offset == -1


@pytest.mark.parametrize(
    ("after_ms", "offset"),
    [
        (-1, 0),
        (0, 0),
        (1, 1),
        (2000, 2),
        (2001, 3),
        (60_000, 3),
        (5 * 60_000 + 1000, 16),
        (9 * 60_000 + 2000, 29),
    ],
)
def test_a_time_finds_the_first_record_that_is_not_earlier(
    client: Driver, minutes: str, after_ms: int, offset: int
):
    found = client.offset(minutes, 0, BASE_MS + after_ms)
    assert found.offset == offset
    (record,) = client.read(minutes, {0: offset}, 30 - offset)[:1]
    assert found.timestamp_ms == record.timestamp_ms >= BASE_MS + after_ms


def test_a_time_behind_the_last_record_finds_nothing(client: Driver, minutes: str):
    assert client.offset(minutes, 0, BASE_MS + 9 * 60_000 + 2001).offset == -1


def test_seeking_to_a_time_replays_from_there(client: Driver, minutes: str):
    found = client.offset(minutes, 0, BASE_MS + 7 * 60_000)
    values = [int(record.value) for record in client.read(minutes, {0: found.offset}, 9)]
    assert values == [
        BASE_MS + minute * 60_000 + second * 1000 for minute in (7, 8, 9) for second in range(3)
    ]


def test_the_largest_timestamp_is_found_though_later_records_are_older(
    client: Driver, new_topic: Callable[..., str]
):
    topic = new_topic()
    for time_ms in (1000, 9000, 3000):
        client.produce(topic, [Message(value=b"v", partition=0, timestamp_ms=BASE_MS + time_ms)])
    found = client.offset(topic, 0, "max_timestamp")
    assert (found.offset, found.timestamp_ms) == (1, BASE_MS + 9000)


def test_deleted_records_move_the_start_and_times_skip_them(client: Driver, minutes: str):
    assert client.delete_records(minutes, {0: 10}) == {0: 10}
    assert client.offset(minutes, 0, "earliest").offset == 10
    assert client.offset(minutes, 0, BASE_MS).offset == 10
    assert [record.offset for record in client.read(minutes, {0: 10}, 20)] == list(range(10, 30))


def test_deleting_beyond_the_end_is_refused(client: Driver, minutes: str):
    with pytest.raises(DriverError) as refused:
        client.delete_records(minutes, {0: 31})
    assert refused.value.code == ErrorCode.offset_out_of_range
    assert client.offset(minutes, 0, "earliest").offset == 0
