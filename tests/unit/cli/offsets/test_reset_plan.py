"""Plans for moving committed offsets."""

import pytest

from headrace.cli.commands.groups import parse_target
from headrace.cli.failures import UsageError
from headrace.cli.offsets.reset_plan import Shift, active_group_error, plan_reset
from headrace.client.topics.positions import Bounds, Position, PositionKind
from headrace.errors import RequestError

P0, P1 = ("orders", 0), ("orders", 1)
BOUNDS = {P0: Bounds(start=10, end=100), P1: Bounds(start=0, end=50)}


def targets(target, committed=None, at_time=None):
    plan = plan_reset(
        target, committed=committed or {P0: 40, P1: 50}, bounds=BOUNDS, offsets_at_time=at_time or {}
    )
    return [(move.partition, move.target, move.clamped) for move in plan]


def test_to_earliest_and_latest_take_each_partitions_own_bounds():
    assert targets(Position(PositionKind.EARLIEST)) == [(0, 10, False), (1, 0, False)]
    assert targets(Position(PositionKind.LATEST)) == [(0, 100, False), (1, 50, False)]


def test_an_offset_outside_the_log_is_brought_inside_and_marked():
    assert targets(Position(PositionKind.OFFSET, 60)) == [(0, 60, False), (1, 50, True)]


def test_a_shift_moves_from_the_committed_offset_and_stops_at_the_log_start():
    assert targets(Shift(-35)) == [(0, 10, True), (1, 15, False)]


def test_a_time_takes_the_first_record_at_or_after_it_or_the_log_end():
    assert targets(Position(PositionKind.TIME, 1), at_time={P0: 33, P1: None}) == [
        (0, 33, False),
        (1, 50, False),
    ]


def test_a_shift_of_a_partition_without_committed_offset_is_refused():
    with pytest.raises(RequestError, match="orders:1 has no committed offset"):
        targets(Shift(1), committed={P0: 40, P1: None})


def test_a_partition_without_committed_offset_can_be_set():
    (move,) = plan_reset(
        Position(PositionKind.EARLIEST), committed={P1: None}, bounds=BOUNDS, offsets_at_time={}
    )
    assert (move.committed, move.target, move.replayed_records) == (None, 0, None)


def test_a_move_says_how_many_records_are_read_again_or_skipped():
    back, ahead = plan_reset(
        Position(PositionKind.OFFSET, 45), committed={P0: 60, P1: 40}, bounds=BOUNDS, offsets_at_time={}
    )
    assert (back.replayed_records, ahead.replayed_records) == (15, -5)


def test_exactly_one_target_must_be_given():
    for given in (
        (None, None, False, False, None),
        (1, None, True, False, None),
        (None, "-2h", False, False, 3),
    ):
        with pytest.raises(UsageError, match="exactly one"):
            parse_target(*given, now_ms=0)


def test_offset_zero_and_a_shift_by_zero_are_targets():
    assert parse_target(0, None, False, False, None, now_ms=0) == Position(PositionKind.OFFSET, 0)
    assert parse_target(None, None, False, False, 0, now_ms=0) == Shift(0)


def test_the_refusal_of_an_active_group_names_state_members_and_what_to_do():
    message = str(active_group_error("billing", "Stable", 2))
    assert "billing" in message
    assert "Stable, 2 members" in message
    assert "stop its consumers" in message
