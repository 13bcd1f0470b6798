"""The trend of groups' lag."""

from headrace.console.ask.lag_history import GroupLag, LagHistory


def lag(records: int | None) -> GroupLag:
    return GroupLag(
        group="g", state="Stable", type="classic", members=1, lag_records=records, lag_seconds=None
    )


def test_ten_minutes_are_kept_and_unknown_lags_leave_a_gap():
    history = LagHistory()
    for second in range(0, 1_200, 2):
        history.add(1000 * second, {"g": lag(None if second == 1_000 else second)})
    kept = history.of("g")
    assert kept[0] == (600_000, 600)
    assert kept[-1] == (1_198_000, 1_198)
    assert 1_000_000 not in dict(kept)


def test_a_group_that_is_gone_is_forgotten():
    history = LagHistory()
    history.add(0, {"g": lag(1), "h": lag(2)})
    history.add(1, {"h": lag(3)})
    history.add(2, {"g": lag(4), "h": lag(5)})
    assert history.of("g") == [(2, 4)]
    assert history.of("h") == [(0, 2), (1, 3), (2, 5)]
    assert history.of("never") == []
