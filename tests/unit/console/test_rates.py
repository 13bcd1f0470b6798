"""How fast counters grow."""

from headrace.console.rates import Rates


def test_a_rate_needs_two_looks_and_is_that_of_the_last_ten_seconds():
    rates = Rates()
    rates.add(0, {"a": 100})
    assert rates.of("a") is None
    rates.add(1_000, {"a": 300, "b": 5})
    assert rates.of("a") == 200.0
    assert rates.of("b") is None
    for second in range(2, 30):
        rates.add(1_000 * second, {"a": 300})
    assert rates.of("a") == 0.0


def test_a_counter_that_began_anew_has_no_negative_rate():
    rates = Rates()
    rates.add(0, {"a": 100})
    rates.add(1_000, {"a": 3})
    assert rates.of("a") == 0.0


def test_two_looks_at_one_moment_tell_nothing():
    rates = Rates()
    rates.add(5, {"a": 1})
    rates.add(5, {"a": 9})
    assert rates.of("a") is None
