"""The demonstration's own parts: its orders, its table, its verdict."""

from itertools import islice

from headrace.demo.orders import Tally, Totals, orders
from headrace.demo.run import differences
from headrace.demo.table import MinuteTable


def test_the_same_seed_gives_the_same_orders_and_another_does_not():
    first, again, other = (list(islice(orders(seed, 100), 50)) for seed in (1, 1, 2))
    assert first == again != other


def test_a_second_of_orders_is_a_minute_of_the_shop():
    minutes = {order.minute for order in islice(orders(1, 100), 300)}
    assert minutes == {"2026-01-05 09:00", "2026-01-05 09:01", "2026-01-05 09:02", "2026-01-05 09:03"}


def test_a_tally_counts_and_sums_per_minute():
    tally = Tally()
    for minute, cents in (("a", 5), ("b", 7), ("a", 6)):
        tally.add(minute, cents)
    assert tally.minutes == {"a": Totals(2, 11), "b": Totals(1, 7)}


def test_a_repeated_batch_changes_nothing(tmp_path):
    table = MinuteTable(tmp_path / "orders.db")
    assert table.apply("q", 0, [("09:00", 1, 100)])
    assert not table.apply("q", 0, [("09:00", 9, 900)])
    assert table.minutes() == {"09:00": Totals(1, 100)}


def test_a_later_batch_replaces_the_totals_and_another_query_has_batches_of_its_own(tmp_path):
    table = MinuteTable(tmp_path / "orders.db")
    table.apply("q", 0, [("09:00", 1, 100)])
    assert table.apply("q", 1, [("09:00", 2, 300)])
    assert table.apply("other", 0, [("09:01", 1, 50)])
    assert table.minutes() == {"09:00": Totals(2, 300), "09:01": Totals(1, 50)}


def test_every_kind_of_difference_is_named():
    produced = {"a": Totals(1, 1), "b": Totals(2, 2), "d": Totals(1, 5)}
    stored = {"a": Totals(1, 1), "b": Totals(2, 3), "c": Totals(1, 1)}
    found = differences(produced, stored)
    assert [line.split(":")[0] for line in found] == ["b", "c", "d"]
    assert differences(produced, produced) == []
