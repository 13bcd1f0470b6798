"""Our topic patterns agree with Python's `re` wherever they are accepted, and cost little to refuse."""

import re

import hypothesis.strategies as st
from hypothesis import assume, given

from headrace.groups.consumer.topic_regex import TopicRegex

pieces = st.sampled_from(
    [*"ab.-()|*+?^$", r"\.", r"\d", r"\w", "[ab]", "[^a]", "[a-c]", "(?:", "{2}", "{1,2}", "{1,}"]
)
patterns = st.lists(pieces, max_size=10).map("".join)
names = st.text("abc.-1", max_size=6)


@given(patterns, st.lists(names, min_size=1, max_size=5))
def test_an_accepted_pattern_matches_what_re_matches(pattern, texts):
    ours = TopicRegex(pattern, 256)
    assume(ours.problem is None)
    try:
        theirs = re.compile(pattern)
    except re.error:
        assume(False)  # such as a repeated anchor, which RE2 allows and `re` does not
    for text in texts:
        assert ours.matches(text) == bool(theirs.fullmatch(text))


@given(st.text(max_size=40))
def test_any_text_is_a_pattern_or_is_refused_with_a_reason(text):
    problem = TopicRegex(text, 256).problem
    assert problem is None or "cannot be used" in problem
