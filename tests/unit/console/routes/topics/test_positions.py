from hypothesis import given
from hypothesis import strategies as st

from headrace.console.problems import ProblemError
from headrace.console.routes.topics.positions import format_positions, parse_positions


@given(st.dictionaries(st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 63) - 1), max_size=5))
def test_positions_are_read_as_they_are_written(positions):
    assert parse_positions(format_positions(positions)) == positions


@given(st.text(alphabet="0123456789:,-x ", max_size=20))
def test_any_other_text_is_refused_as_a_position_or_read(text):
    try:
        parse_positions(text)
    except ProblemError as error:
        assert error.problem.status == 400
