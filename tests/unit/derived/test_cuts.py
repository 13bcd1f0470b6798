"""How far a follower reads, so that no transaction of the source is half visible."""

from headrace.derived.topic import Cuts


def cuts(*positions):
    made = Cuts()
    for each in positions:
        made.add(each)
    return made


def test_the_furthest_cut_within_the_limit_is_taken():
    assert cuts({0: 2, 1: 1}, {0: 4, 1: 4}, {0: 90, 1: 9}).furthest({}, 10) == {0: 4, 1: 4}


def test_a_transaction_beyond_the_limit_is_taken_whole():
    assert cuts({0: 500}, {0: 600}).furthest({0: 10}, 10) == {0: 500}


def test_cuts_that_are_reached_are_not_taken_again():
    made = cuts({0: 2}, {0: 4})
    assert made.furthest({0: 4}, 10) is None
    made.add({0: 5, 1: 3})
    assert made.furthest({0: 4}, 10) == {0: 5, 1: 3}
    assert made.furthest({0: 4}, 10) == {0: 5, 1: 3}  # asked again after a failure
    assert made.furthest({0: 5, 1: 3}, 10) is None


def test_a_partition_never_goes_back():
    assert cuts({0: 2, 1: 9}).furthest({0: 5, 1: 3}, 10) == {0: 5, 1: 9}


def test_of_very_many_cuts_the_newest_is_kept():
    made = Cuts()
    for number in range(1, 50_000):
        made.add({0: number})
    assert made.furthest({}, 1 << 62) == {0: 49_999}
