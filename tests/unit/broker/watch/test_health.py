from pathlib import Path

from headrace.broker.watch.health import MOST_RANGES, damage_warning
from headrace.storage import Damage


def ranges(count):
    return [Damage(Path("/data/0.log"), n * 100, n * 100 + 60, n, n + 1) for n in range(count)]


def test_a_warning_of_damage_names_file_bytes_and_records():
    warning = damage_warning("orders:3", ranges(2))
    assert warning == (
        "partition orders:3 has 2 damaged ranges, which are not served:"
        " /data/0.log [0, 60), records 0 to 0; /data/0.log [100, 160), records 1 to 1"
    )


def test_of_very_many_damaged_ranges_the_first_are_named_and_the_others_counted():
    warning = damage_warning("orders:3", ranges(5000))
    assert warning.count("/data/0.log") == MOST_RANGES
    assert warning.endswith(f"and {5000 - MOST_RANGES} more, in the file damage beside it")
    assert len(warning) < 2000
