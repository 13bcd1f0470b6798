from pathlib import Path

import pytest

from headrace.storage.segments.segment import compacted_name, plain_name, segments_in

HERE = Path("partition")


def sorted_out(*names):
    """Names in force, in order, and those they replaced."""
    segments, replaced = segments_in(HERE, dict.fromkeys(names, 10))
    return [segment.path.name for segment in segments], sorted(replaced)


def test_segments_come_in_order_of_their_base_offsets_and_other_files_are_ignored():
    names = [plain_name(n) for n in (500, 0, 20)]
    assert sorted_out(*names, "checkpoint", "log-start", "x.log") == (
        [plain_name(n) for n in (0, 20, 500)],
        [],
    )


def test_a_compacted_segment_replaces_every_plain_one_in_its_range():
    merged = compacted_name(10, 40, 1)
    names = [plain_name(n) for n in (0, 10, 20, 30, 40)]
    kept, replaced = sorted_out(*names, merged)
    assert kept == [plain_name(0), merged, plain_name(40)]
    assert replaced == [plain_name(n) for n in (10, 20, 30)]


@pytest.mark.parametrize("old", [(10, 40), (10, 20), (20, 40), (20, 30)])
def test_a_later_run_replaces_what_an_earlier_one_left(old):
    newer, older = compacted_name(10, 40, 10), compacted_name(*old, 9)
    assert sorted_out(older, newer, plain_name(40)) == ([newer, plain_name(40)], [older])


def test_neighbours_do_not_replace_each_other():
    names = [compacted_name(0, 10, 2), compacted_name(10, 20, 1), plain_name(20)]
    assert sorted_out(*names) == (names, [])
