"""When an alert holds: shares of the last batches, and the delay behind the log."""

import pytest

from headrace.app.alerts import Alert, AlertBook, StreamWatch, Thresholds
from headrace.app.reports import BatchReport
from headrace.app.shares import parse_share
from headrace.errors import ConfigError


def batch(number: int, records: int = 100, **books: int) -> BatchReport:
    return BatchReport(
        query="orders",
        batch_id=number,
        records=records,
        watermark_us=None,
        following={},
        books={"revenue": {"on_time": records - sum(books.values()), **books}},
        changed={},
    )


def watching(**thresholds: float) -> StreamWatch:
    return StreamWatch("orders", Thresholds(**thresholds))


def held(watch: StreamWatch, now: float = 0.0) -> list[tuple[str, str]]:
    return [(each.kind, each.subject) for each in watch.alerts(now)]


@pytest.mark.parametrize("late", [{"dropped": 6}, {"corrected": 6}, {"dropped": 3, "corrected": 3}])
def test_too_many_late_records_of_a_view_are_an_alert_until_they_are_few_again(late):
    watch = watching(late_share=0.05)
    watch.batch(batch(0, **late))
    assert held(watch) == [("late", "revenue")]
    watch.batch(batch(1))
    assert held(watch) == []


def test_a_share_at_its_threshold_is_none_and_neither_is_one_of_a_few_records():
    watch = watching(late_share=0.05)
    watch.batch(batch(0, records=100, dropped=5))
    assert held(watch) == []
    few = watching(late_share=0.05, dead_share=0.0)
    few.batch(batch(0, records=19, dropped=10, dead=9))
    assert held(few) == []


def test_a_batch_that_comes_again_counts_once_and_one_without_records_not_at_all():
    watch = watching(late_share=0.05)
    watch.batch(batch(0, records=100, dropped=6))
    for _ in range(5):
        watch.batch(batch(1, records=200))
    assert held(watch) == []
    watch.batch(batch(2, records=200, dropped=30))
    for number in range(3, 30):
        watch.batch(batch(number, records=0))
    assert held(watch) == [("late", "revenue")]


def test_old_batches_are_forgotten():
    watch = watching(dead_share=0.01)
    watch.batch(batch(0, dead=100))
    assert held(watch) == [("dead-letters", "orders")]
    for number in range(1, 21):
        watch.batch(batch(number))
    assert held(watch) == []


def test_the_delay_is_the_age_of_the_newest_end_that_the_query_came_to():
    watch = watching(delay_s=10)
    watch.ends(100.0, {0: 50, 1: 10}, {0: 50, 1: 10})
    assert watch.delay_s(100.0) == 0
    watch.ends(105.0, {0: 80, 1: 10}, {0: 50, 1: 10})
    watch.ends(110.0, {0: 90, 1: 10}, {0: 60, 1: 10})
    assert watch.delay_s(110.0) == 10
    assert held(watch, 110.0) == []
    assert held(watch, 111.0) == [("lag", "orders")]
    watch.ends(112.0, {0: 99, 1: 10}, {0: 90, 1: 10})
    assert watch.delay_s(112.0) == 2
    watch.ends(113.0, {0: 99, 1: 10}, {0: 99, 1: 10})
    assert watch.delay_s(113.0) == 0


def test_a_query_that_begins_far_behind_is_measured_from_when_it_began():
    watch = watching(delay_s=10)
    watch.ends(100.0, {0: 1_000}, {})
    assert watch.delay_s(100.0) == 0
    watch.ends(120.0, {0: 1_000}, {0: 10})
    assert held(watch, 120.0) == [("lag", "orders")]
    watch.forget()
    assert held(watch, 120.0) == []


def test_without_a_threshold_there_is_no_alert():
    watch = watching()
    watch.batch(batch(0, dropped=50, dead=50))
    watch.ends(0.0, {0: 1}, {})
    assert held(watch, 1_000.0) == []


def test_an_alert_is_told_when_it_begins_and_when_it_is_over_and_keeps_its_beginning():
    book, watch = AlertBook(), watching(late_share=0.05)
    watch.batch(batch(0, dropped=50))
    (said,) = book.update(10.0, watch.alerts(10.0))
    assert said.startswith("alert: 50.0% of the records of revenue are late")
    assert book.update(20.0, watch.alerts(20.0)) == []
    (alert,) = book.to_json()
    assert (alert["id"], alert["since"], alert["value"], alert["threshold"]) == (
        "late revenue",
        10.0,
        0.5,
        0.05,
    )
    assert book.update(30.0, []) == ["no longer: 50.0% of the records of revenue are late"]
    assert book.to_json() == ()


def test_alerts_are_told_apart_by_kind_and_subject():
    fields = {"severity": "warning", "title": "", "detail": "", "next": "", "value": 1.0, "threshold": 0.0}
    alerts = [
        Alert(kind=kind, subject=subject, **fields) for kind in ("late", "lag") for subject in ("a", "b")
    ]
    book = AlertBook()
    book.update(1.0, alerts)
    assert len(book.held) == 4


@pytest.mark.parametrize(
    ("given", "share"), [("5 %", 0.05), ("0.5%", 0.005), (0.05, 0.05), (1, 1.0), (None, None)]
)
def test_shares_are_written_in_percent_or_as_a_part_of_one(given, share):
    assert parse_share("late_alert", given) == share


@pytest.mark.parametrize("given", ["5", "much", "101 %", -0.1, 2, "%"])
def test_what_is_no_share_is_refused_by_the_name_of_its_argument(given):
    with pytest.raises(ConfigError, match="late_alert"):
        parse_share("late_alert", given)
