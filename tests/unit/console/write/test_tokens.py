import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.console.problems import ProblemError
from headrace.console.write.tokens import decode_token, encode_token, merge_positions, missing_positions

OFFSETS = st.integers(0, (1 << 63) - 1)
PARTITIONS = st.integers(0, (1 << 31) - 1)
POSITIONS = st.dictionaries(
    st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable()),
    st.dictionaries(PARTITIONS, OFFSETS, max_size=4),
    max_size=4,
)
FEW = st.dictionaries(
    st.sampled_from("abc"), st.dictionaries(st.integers(0, 2), st.integers(0, 5), max_size=3), max_size=3
)


@given(POSITIONS)
def test_a_token_gives_back_what_it_was_made_of(positions):
    assert decode_token(encode_token(positions)) == positions


@given(POSITIONS)
def test_the_same_positions_give_the_same_token_in_any_order(positions):
    backwards = {topic: dict(reversed(each.items())) for topic, each in reversed(list(positions.items()))}
    assert encode_token(backwards) == encode_token(positions)


@given(st.text(max_size=200) | POSITIONS.map(encode_token).map(lambda text: text[1:]))
def test_whatever_is_no_token_is_refused_or_read_never_more(text):
    try:
        found = decode_token(text)
    except ProblemError as error:
        assert error.problem.status == 400
    else:
        assert all(offset >= 0 for each in found.values() for offset in each.values())


@pytest.mark.parametrize(
    "text", ["", "x", "bnVsbA", "W10", "eyJhIjpbXX0", "eyJhIjp7IjAiOi0xfX0", "A" * 70_000]
)
def test_examples_of_no_token(text):
    with pytest.raises(ProblemError):
        decode_token(text)


@given(FEW, FEW, FEW)
def test_a_view_reflects_the_merged_token_when_it_reflects_both(one, other, reflected):
    both = not missing_positions(one, reflected) and not missing_positions(other, reflected)
    assert both == (not missing_positions(merge_positions([one, other]), reflected))


@given(FEW, FEW)
def test_what_is_missing_is_what_the_view_must_still_read(wanted, reflected):
    behind = missing_positions(wanted, reflected)
    caught_up = merge_positions(
        [
            reflected,
            {
                topic: {
                    partition: reflected.get(topic, {}).get(partition, 0) + offsets
                    for partition, offsets in each.items()
                }
                for topic, each in behind.items()
            },
        ]
    )
    assert not missing_positions(wanted, caught_up)
