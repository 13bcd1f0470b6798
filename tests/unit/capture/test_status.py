"""What a capture says of its progress: shares, rates, the time left, how far it is behind."""

import pytest

from headrace.capture.source import Lag
from headrace.capture.state import CaptureState, TableState
from headrace.capture.status import Lags, Rates, table_status


def state(rows, phase="rows"):
    return CaptureState(tables={"main.t": TableState(rows=rows, phase=phase)})


def rates_after(*looks):
    """The rates after looks at these times, with so many rows read."""
    rates, found = Rates(), {}
    for now_s, rows in looks:
        found = rates.note(state(rows), now_s)
    return found


def test_a_table_of_which_a_quarter_was_read_in_ten_seconds_needs_thirty_more():
    rates = rates_after((100.0, 0), (105.0, 1_000), (110.0, 2_500))
    assert rates == {"main.t": 250.0}
    said = table_status(TableState(rows=2_500), 10_000, rates["main.t"])
    assert (said.share, said.rows_per_s, said.seconds_left) == (0.25, 250.0, 30.0)


def test_a_rate_is_that_of_the_last_ten_seconds():
    assert rates_after((0.0, 0), (10.0, 10), (20.0, 1_010), (30.0, 2_010)) == {"main.t": 100.0}


def test_before_the_second_look_and_without_a_total_nothing_is_made_up():
    assert rates_after((0.0, 10)) == {}
    said = table_status(TableState(rows=10), None, 5.0)
    assert (said.share, said.rows_per_s, said.seconds_left) == (None, 5.0, None)
    assert table_status(TableState(rows=10), 20, None).seconds_left is None


def test_a_table_that_is_read_again_starts_a_rate_of_its_own():
    assert rates_after((0.0, 5_000), (1.0, 0), (2.0, 100)) == {"main.t": 100.0}


def test_an_estimate_that_was_too_low_never_gives_more_than_everything():
    said = table_status(TableState(rows=30), 20, 1.0)
    assert (said.share, said.seconds_left) == (1.0, 0.0)


def test_a_table_that_was_read_has_no_rate():
    said = table_status(TableState(rows=30, phase="done"), 20, 1.0)
    assert (said.share, said.rows_per_s, said.seconds_left) == (1.0, None, None)


def test_behind_are_the_seconds_since_the_last_transaction_or_since_nothing_was_behind():
    lags = Lags(began_ms=1_000)
    assert lags.note(Lag(bytes=10), read_us=0, now_ms=3_000).seconds == 2.0
    assert lags.note(Lag(bytes=10), read_us=4_500_000, now_ms=5_000).seconds == 0.5
    assert lags.note(Lag(bytes=0), read_us=4_500_000, now_ms=9_000).seconds == 0.0
    after_idling = lags.note(Lag(bytes=10), read_us=4_500_000, now_ms=9_250)
    assert after_idling.seconds == 0.25, "what came since cannot be older than the last look"


@pytest.mark.parametrize("own", [0.0, 7.5])
def test_a_source_that_knows_its_seconds_is_believed(own):
    lag = Lag(changes=1, seconds=own)
    assert Lags(0).note(lag, read_us=1, now_ms=60_000) == lag
