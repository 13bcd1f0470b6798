"""When an alert holds: shares of the last batches, and the delay behind the log."""

from dataclasses import replace

import pytest

from headrace.app.status.alerts import QUIET_S, ActiveAlerts, Alert, StreamMonitor, Thresholds, parse_share
from headrace.app.status.batch_report import BatchReport
from headrace.errors import ConfigError


def batch(number: int, records: int = 100, **counters: int) -> BatchReport:
    return BatchReport(
        query="orders",
        batch_id=number,
        records=records,
        watermark_us=None,
        following={},
        counters={"revenue": {"on_time": records - sum(counters.values()), **counters}},
        changed={},
    )


def watching(**thresholds: float) -> StreamMonitor:
    return StreamMonitor("orders", Thresholds(**thresholds))


def active(watch: StreamMonitor, now: float = 0.0) -> list[tuple[str, str]]:
    return [(each.kind, each.subject) for each in watch.alerts(now)]


@pytest.mark.parametrize("late", [{"dropped": 6}, {"corrected": 6}, {"dropped": 3, "corrected": 3}])
def test_too_many_late_records_of_a_view_are_an_alert_until_they_are_few_again(late):
    watch = watching(late_share=0.05)
    watch.batch(batch(0, **late), 0.0)
    assert active(watch) == [("late", "revenue")]
    watch.batch(batch(1), 0.0)
    assert active(watch) == []


def test_a_share_at_its_threshold_is_none_and_neither_is_one_of_a_few_records():
    watch = watching(late_share=0.05)
    watch.batch(batch(0, records=100, dropped=5), 0.0)
    assert active(watch) == []
    few = watching(late_share=0.05, dead_share=0.0)
    few.batch(batch(0, records=19, dropped=10, dead=9), 0.0)
    assert active(few) == []


def test_a_batch_that_comes_again_counts_once_and_one_without_records_not_at_all():
    watch = watching(late_share=0.05)
    watch.batch(batch(0, records=100, dropped=6), 0.0)
    for _ in range(5):
        watch.batch(batch(1, records=200), 0.0)
    assert active(watch) == []
    watch.batch(batch(2, records=200, dropped=30), 0.0)
    for number in range(3, 30):
        watch.batch(batch(number, records=0), 0.0)
    assert active(watch) == [("late", "revenue")]


def test_old_batches_are_forgotten():
    watch = watching(dead_share=0.01)
    watch.batch(batch(0, dead=100), 0.0)
    assert active(watch) == [("dead-letters", "orders")]
    for number in range(1, 21):
        watch.batch(batch(number), 0.0)
    assert active(watch) == []


def test_the_delay_is_the_age_of_the_newest_end_that_the_query_came_to():
    watch = watching(delay_s=10)
    watch.ends(100.0, {0: 50, 1: 10}, {0: 50, 1: 10})
    assert watch.delay_s(100.0) == 0
    watch.ends(105.0, {0: 80, 1: 10}, {0: 50, 1: 10})
    watch.ends(110.0, {0: 90, 1: 10}, {0: 60, 1: 10})
    assert watch.delay_s(110.0) == 10
    assert active(watch, 110.0) == []
    assert active(watch, 111.0) == [("lag", "orders")]
    watch.ends(112.0, {0: 99, 1: 10}, {0: 90, 1: 10})
    assert watch.delay_s(112.0) == 2
    watch.ends(113.0, {0: 99, 1: 10}, {0: 99, 1: 10})
    assert watch.delay_s(113.0) == 0


def test_a_query_that_begins_far_behind_and_gains_nothing_is_measured_from_when_it_began():
    watch = watching(delay_s=10)
    watch.ends(100.0, {0: 1_000}, {0: 0})
    assert watch.delay_s(100.0) == 0
    watch.batch(batch(0), 101.0)
    watch.ends(105.0, {0: 1_000}, {0: 10})
    watch.ends(115.0, {0: 1_000}, {0: 10})
    assert active(watch, 115.0) == []
    assert active(watch, 116.0) == [("lag", "orders")]
    assert watch.delay_s(116.0) == 16
    watch.forget()
    assert active(watch, 116.0) == []


def test_a_partition_that_was_silent_since_a_restart_is_not_taken_for_unread():
    """Only partitions with records tell where the query stands in them."""
    watch = watching(delay_s=10)
    for now in range(0, 200, 5):
        watch.ends(now, {0: 500 + now, 1: 77}, {0: 500 + now})
        assert watch.delay_s(now) == 0
        assert active(watch, now) == []


def test_a_partition_that_is_known_to_be_unread_is_a_delay_beside_silent_ones():
    watch = watching(delay_s=10)
    watch.batch(batch(0), 0.0)
    watch.ends(0.0, {0: 5, 1: 77}, {0: 5})
    for now in (5.0, 10.0, 15.0, 20.0):
        watch.ends(now, {0: 9, 1: 77}, {0: 5})
    assert active(watch, 20.0) == [("lag", "orders")]


def test_where_nothing_is_known_of_a_query_it_is_not_behind():
    watch = watching(delay_s=10)
    for now in range(0, 200, 5):
        watch.ends(now, {0: 1_000}, {})
    assert active(watch, 200.0) == []


def test_a_query_that_starts_and_catches_up_is_not_behind_however_long_it_takes():
    watch = watching(delay_s=10)
    watch.batch(batch(0), 0.0)
    for step in range(101):  # the log grows meanwhile, and an hour of it was there before
        now, end, position = 5.0 * step, 100_000 + 50 * step, 1_050 * step
        watch.ends(now, {0: end}, {0: min(position, end)})
        assert active(watch, now) == []
    assert watch.delay_s(500.0) == 0
    # From then on it is held to its threshold.
    for now in (505.0, 510.0, 515.0):
        watch.ends(now, {0: 200_000}, {0: 105_000})
    assert active(watch, 515.0) == [("lag", "orders")]


def test_a_query_that_starts_and_is_left_further_behind_is_behind():
    watch = watching(delay_s=10)
    watch.batch(batch(0), 0.0)
    told = []
    for step in range(10):
        now = 5.0 * step
        watch.ends(now, {0: 1_000 + 500 * step}, {0: 100 * step})
        told += active(watch, now)
    assert told and set(told) == {("lag", "orders")}


def test_the_first_batch_of_a_start_may_take_a_minute_more_and_not_for_ever():
    watch = watching(delay_s=10)
    for now in range(0, 75, 5):
        watch.ends(float(now), {0: 1_000}, {0: 0})
        assert active(watch, now) == []
    assert active(watch, 71.0) == [("lag", "orders")]


def test_shares_are_forgotten_when_nothing_was_read_for_a_while():
    watch = watching(late_share=0.05, dead_share=0.05)
    watch.batch(batch(0, dropped=50, dead=50), 1_000.0)
    assert active(watch, 1_000.0 + QUIET_S) == [("late", "revenue"), ("dead-letters", "orders")]
    watch.batch(batch(1, records=0), 1_000.0 + QUIET_S)
    assert active(watch, 1_001.0 + QUIET_S) == []
    # What comes after the silence is judged by itself.
    watch.batch(batch(2, records=100), 1_100.0 + QUIET_S)
    assert active(watch, 1_100.0 + QUIET_S) == []


def test_slow_input_is_not_silent():
    watch = watching(dead_share=0.05)
    for number in range(30):
        watch.batch(batch(number, records=2, dead=1), number * QUIET_S)
    assert active(watch, 29 * QUIET_S) == [("dead-letters", "orders")]


def test_without_a_threshold_there_is_no_alert():
    watch = watching()
    watch.batch(batch(0, dropped=50, dead=50), 0.0)
    watch.ends(0.0, {0: 1}, {})
    assert active(watch, 1_000.0) == []


def test_an_alert_is_told_when_it_begins_and_when_it_is_over_and_keeps_its_beginning():
    alerts, watch = ActiveAlerts(), watching(late_share=0.05)
    watch.batch(batch(0, dropped=50), 0.0)
    (said,) = alerts.update(10.0, watch.alerts(10.0))
    assert said.startswith("alert: 50.0% of the records of revenue are late")
    assert alerts.update(20.0, watch.alerts(20.0)) == []
    (alert,) = alerts.to_json()
    assert (alert["id"], alert["since"], alert["value"], alert["threshold"]) == (
        "late revenue",
        10.0,
        0.5,
        0.05,
    )
    assert alerts.update(30.0, []) == ["alert over: 50.0% of the records of revenue are late"]
    assert alerts.to_json() == ()


def test_alerts_are_told_apart_by_kind_and_subject():
    fields = {"severity": "warning", "title": "", "detail": "", "next": "", "value": 1.0, "threshold": 0.0}
    raised = [
        Alert(kind=kind, subject=subject, **fields) for kind in ("late", "lag") for subject in ("a", "b")
    ]
    alerts = ActiveAlerts()
    alerts.update(1.0, raised)
    assert len(alerts.active) == 4


@pytest.mark.parametrize(
    ("given", "share"), [("5 %", 0.05), ("0.5%", 0.005), (0.05, 0.05), (1, 1.0), (None, None)]
)
def test_shares_are_written_in_percent_or_as_a_part_of_one(given, share):
    assert parse_share("late_alert", given) == share


@pytest.mark.parametrize("given", ["5", "much", "101 %", -0.1, 2, "%"])
def test_what_is_no_share_is_refused_by_the_name_of_its_argument(given):
    with pytest.raises(ConfigError, match="late_alert"):
        parse_share("late_alert", given)


@pytest.mark.parametrize(
    ("watermark_us", "is_odd"),
    [(None, False), (1_763_000_000_000, True), (1_763_000_000_000_000, False), (-5, False), (0, False)],
)
def test_numbers_that_give_times_in_1970_betray_another_unit(watermark_us, is_odd):
    watch = StreamMonitor("orders", Thresholds(), counted_time="at is taken to be in ms")
    watch.batch(replace(batch(0), watermark_us=watermark_us), 0.0)
    assert active(watch) == ([("event-time", "orders")] if is_odd else [])


def test_times_that_are_no_numbers_may_be_of_1970():
    watch = StreamMonitor("orders", Thresholds())
    watch.batch(replace(batch(0), watermark_us=1), 0.0)
    assert active(watch) == []
