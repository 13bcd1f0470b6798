from headrace.broker.limits.memory import MemoryBudget

FIRST, SECOND, THIRD = "first", "second", "third"


def test_reservations_stop_at_the_total_for_all_but_one():
    budget = MemoryBudget(100)
    assert budget.try_reserve(60, FIRST)
    assert budget.try_reserve(60, SECOND)  # beyond the total, and so nobody else
    assert not budget.try_reserve(1, FIRST)
    assert budget.try_reserve(60, SECOND)


def test_the_right_to_exceed_passes_on_once_the_total_is_kept_again():
    budget = MemoryBudget(100)
    budget.try_reserve(100, FIRST)
    assert budget.try_reserve(50, SECOND)
    assert not budget.try_reserve(50, THIRD)
    budget.release(50)
    assert budget.try_reserve(50, THIRD)


def test_only_one_request_of_a_holder_exceeds_the_total_and_the_next_waits():
    budget = MemoryBudget(100)
    assert budget.try_reserve(100, FIRST, begins=True)
    assert budget.try_reserve(50, SECOND, begins=True)  # the first to exceed may
    assert not budget.try_reserve(1, SECOND, begins=True)  # once, however many it has under way
    assert not budget.try_reserve(1, THIRD, begins=True)
    assert budget.try_reserve(50, SECOND)  # what has begun goes on
    budget.release(200)
    assert budget.try_reserve(100, THIRD, begins=True)


def test_one_that_is_larger_than_the_total_gets_through():
    budget = MemoryBudget(100)
    assert budget.try_reserve(500, FIRST)
    assert not budget.try_reserve(1, SECOND)
    budget.release(500)
    assert budget.held_bytes == 0
    assert budget.try_reserve(1, SECOND)


def test_those_who_were_refused_are_called_in_order_as_bytes_come_back():
    budget = MemoryBudget(100)
    budget.try_reserve(150, FIRST)
    called = []

    def claim(name: str) -> None:
        called.append((name, budget.try_reserve(150, name)))

    budget.when_released(lambda: claim(SECOND))
    budget.when_released(lambda: claim(THIRD))
    assert budget.wanted
    budget.release(150)
    assert called == [(SECOND, True)]
    budget.release(150)
    assert called == [(SECOND, True), (THIRD, True)]
    assert not budget.wanted
