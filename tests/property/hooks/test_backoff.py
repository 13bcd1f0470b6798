"""Waits grow, are bounded, never end before the receiver asked, and end."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from headrace.hooks.backoff import LONGEST_ASKED_S, Backoff

backoffs = st.builds(
    lambda first, factor, tries: Backoff(first_s=first, longest_s=first * factor, tries=tries),
    st.floats(0.001, 10),
    st.floats(1, 1e6),
    st.integers(1, 5_000),
)


@given(backoffs, st.integers(1, 6_000), st.none() | st.floats(0, 1e12), st.integers())
def test_a_wait_is_within_its_bounds(backoff, failures, asked_s, seed):
    wait_s = backoff.wait_s(failures, Random(seed), asked_s)
    if failures >= backoff.tries:
        assert wait_s is None
        return
    asked = min(asked_s or 0, LONGEST_ASKED_S)
    assert asked <= wait_s <= max(asked, backoff.bound_s(failures))
    assert backoff.bound_s(failures) <= backoff.longest_s
    assert backoff.bound_s(failures) <= backoff.bound_s(failures + 1)


def test_jitter_spreads_over_the_whole_range_and_follows_its_seed():
    backoff = Backoff(first_s=1, longest_s=64, tries=50)
    waits = [backoff.wait_s(20, Random(seed)) for seed in range(500)]
    assert min(waits) < 2 and max(waits) > 62
    assert waits == [backoff.wait_s(20, Random(seed)) for seed in range(500)]
