"""Where a query begins, as a user writes it."""

import pytest

from headrace.client import EARLIEST, LATEST
from headrace.errors import ConfigError
from headrace.streams.start import Start, parse_start


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Start(EARLIEST)),
        ("Latest", Start(LATEST)),
        ("2026-01-31T12:00:00Z", Start(1769860800000)),
        ("2026-01-31T13:00:00+01:00", Start(1769860800000)),
        ("2026-01-31 12:00:00", Start(1769860800000)),
        ("0:1200,1:1187", Start(EARLIEST, {0: 1200, 1: 1187})),
        (" 3:0 ", Start(EARLIEST, {3: 0})),
        ('{"0": 1200, "1": 1187}', Start(EARLIEST, {0: 1200, 1: 1187})),
    ],
)
def test_a_start_is_a_word_a_time_or_offsets(text, expected):
    assert parse_start(text) == expected


@pytest.mark.parametrize("text", ["now", "", "0:1,0:2", "0:-1", "0", "0:", '{"0": null}', '{"0": 1', "1:2:3"])
def test_anything_else_is_refused_with_what_there_is(text):
    with pytest.raises(ConfigError, match=r"neither earliest, latest, a time such as .* nor offsets such as"):
        parse_start(text)
