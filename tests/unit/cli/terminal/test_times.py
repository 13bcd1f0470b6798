"""Times as people type them."""

import pytest

from headrace.cli.terminal.times import format_span, format_time, parse_time
from headrace.errors import RequestError

NOW = 1_763_241_600_000  # 2025-11-15T21:20:00Z


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("-2h", NOW - 7_200_000),
        ("-1d12h", NOW - 36 * 3_600_000),
        ("-250ms", NOW - 250),
        ("-1w", NOW - 7 * 86_400_000),
        ("@42", 42),
        ("1970-01-02", 86_400_000),
        ("2025-11-15T21:20:00Z", NOW),
        ("2025-11-15T22:20:00+01:00", NOW),
        ("2025-11-15T21:20:00", NOW),
        ("2025-11-15T21:20:00.007", NOW + 7),
        ("1969-12-31T23:59:59.999Z", -1),
    ],
)
def test_a_time_is_read_in_every_form(text, expected):
    assert parse_time(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "2h", "-2", "-h", "-2y", "tomorrow", "@-1", "2025-13-01", "-2h30"])
def test_what_is_no_time_is_refused_with_the_accepted_forms(text):
    with pytest.raises(RequestError, match="ISO 8601"):
        parse_time(text, NOW)


@pytest.mark.parametrize("time_ms", [0, 1, 999, NOW, NOW + 7, -1, 253_402_300_799_999])
def test_a_shown_time_reads_back_to_the_same_millisecond(time_ms):
    assert parse_time(format_time(time_ms), NOW) == time_ms


def test_a_time_beyond_the_calendar_is_shown_as_milliseconds():
    assert format_time(2**62) == f"@{2**62}"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0s"),
        (0.25, "0.25s"),
        (9.994, "9.99s"),
        (41.2, "41s"),
        (61, "1m 1s"),
        (3600, "1h 0m"),
        (90_061, "1d 1h"),
    ],
)
def test_a_span_is_shown_in_its_two_largest_units(seconds, expected):
    assert format_span(seconds) == expected
