from headrace.broker.memory import MemoryBudget


def test_reservations_stop_at_the_total():
    budget = MemoryBudget(100)
    assert budget.try_reserve(60)
    assert not budget.try_reserve(50)
    assert budget.try_reserve(40)


def test_one_that_is_larger_than_the_total_gets_through_alone():
    budget = MemoryBudget(100)
    assert budget.try_reserve(500)
    assert not budget.try_reserve(1)
    budget.release(500)
    assert budget.try_reserve(1)
    assert not budget.try_reserve(500)


def test_those_who_were_refused_are_called_in_order_as_bytes_come_back():
    budget = MemoryBudget(100)
    budget.try_reserve(100)
    called = []

    def claim(name: str) -> None:
        called.append((name, budget.try_reserve(100)))

    budget.when_released(lambda: claim("first"))
    budget.when_released(lambda: claim("second"))
    budget.release(100)
    assert called == [("first", True)]
    budget.release(100)
    assert called == [("first", True), ("second", True)]
