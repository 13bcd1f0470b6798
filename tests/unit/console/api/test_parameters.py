import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.console.api.parameters import Parameter, format_rfc3339, parse_parameters, parse_rfc3339
from headrace.console.problems import ProblemError

LIMIT = Parameter(name="limit", kind="integer", default=10, minimum=1, maximum=99, help="Most.")
WORD = Parameter(name="word", choices=("json", "csv"), help="Which.")
MANY = Parameter(name="token", repeated=True, help="Several.")
FLAG = Parameter(name="flag", kind="boolean", help="Whether.")
DECLARED = (LIMIT, WORD, MANY, FLAG, Parameter(name="topic", place="path", help="Not here."))


def test_defaults_stand_where_nothing_is_given():
    assert parse_parameters(DECLARED, []) == {"limit": 10, "word": None, "token": (), "flag": None}


def test_values_are_parsed_and_repeated_ones_gathered():
    given = [("limit", "7"), ("token", "a"), ("word", "csv"), ("token", "b"), ("flag", "true")]
    assert parse_parameters(DECLARED, given) == {
        "limit": 7,
        "word": "csv",
        "token": ("a", "b"),
        "flag": True,
    }


@pytest.mark.parametrize(
    "given",
    [
        [("limit", "0")],
        [("limit", "100")],
        [("limit", "1.5")],
        [("limit", "")],
        [("limit", "٣")],
        [("limit", "9" * 30)],
        [("limit", "1"), ("limit", "2")],
        [("word", "xml")],
        [("flag", "yes")],
        [("nope", "1")],
        [("topic", "orders")],
    ],
)
def test_what_is_wrong_is_refused_by_name(given):
    with pytest.raises(ProblemError, match=given[0][0]):
        parse_parameters(DECLARED, given)


def test_others_are_left_to_the_handler_where_that_is_allowed():
    assert parse_parameters(DECLARED, [("region", "eu")], others=True)["limit"] == 10


@given(st.integers(0, 253_402_300_799_999))
def test_a_time_is_read_as_it_is_written(time_ms):
    assert parse_rfc3339(format_rfc3339(time_ms), "time") == time_ms


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00.0019Z", 1),
        ("1969-12-31T23:59:59.999Z", -1),
    ],
)
def test_forms_of_a_time(text, time_ms):
    assert parse_rfc3339(text, "time") == time_ms


@pytest.mark.parametrize("text", ["", "now", "1", "2026-13-01", "2026-01-01T25:00", "x" * 500])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ProblemError):
        parse_rfc3339(text, "time")


def test_times_outside_of_the_calendar_are_null():
    assert [format_rfc3339(each) for each in (None, -1, 1 << 62)] == [None, None, None]
