"""Late records by window."""

from headrace.console.ask.late_windows import LateWindows
from headrace.views import ChangeKind, ViewChange

MINUTE_US = 60_000_000


def headers(**about):
    return [(f"headrace.late.{name}", str(value).encode()) for name, value in about.items()]


def dropped(book: LateWindows, offset: int, *, window: int = 0, late_by_s: float = 1.0, view="v") -> None:
    book.dropped(
        headers(
            reason="late",
            view=view,
            topic="orders",
            partition=0,
            offset=offset,
            window_start_us=window * MINUTE_US,
            window_end_us=(window + 1) * MINUTE_US,
            late_by_us=int(late_by_s * 1_000_000),
        )
    )


def test_dropped_records_are_counted_by_window_with_the_latest_of_them():
    book = LateWindows()
    dropped(book, 1, late_by_s=3)
    dropped(book, 2, late_by_s=70)
    dropped(book, 3, window=5)
    newest, oldest = book.to_json()
    assert (newest["window_start"], newest["dropped"]) == ("1970-01-01T00:05:00.000Z", 1)
    assert oldest == {
        "view": "v",
        "window_start": "1970-01-01T00:00:00.000Z",
        "window_end": "1970-01-01T00:01:00.000Z",
        "dropped": 2,
        "corrected": 0,
        "late_by_s": 70.0,
    }


def test_a_record_that_a_rebuild_drops_again_counts_once_but_once_for_each_view_and_window():
    book = LateWindows()
    for _ in range(2):
        dropped(book, 1)
    dropped(book, 1, view="w")
    dropped(book, 1, window=1)
    assert sorted((each["view"], each["dropped"]) for each in book.to_json()) == [
        ("v", 1),
        ("v", 1),
        ("w", 1),
    ]


def test_records_that_were_summed_up_count_by_their_rows_and_foreign_ones_not_at_all():
    book = LateWindows()
    book.dropped(headers(reason="idle", view="v", topic="orders", rows=7))
    book.dropped([("other", b"x"), ("headrace.late.topic", None)])
    ((only),) = book.to_json()
    assert (only["dropped"], only["window_start"]) == (7, None)


def test_corrections_are_counted_under_the_window_of_their_key_until_the_view_is_built_anew():
    book = LateWindows()
    key = {"window_start": "1970-01-01T00:00:00.000000Z", "window_end": "1970-01-01T00:01:00.000000Z"}
    kinds = (ChangeKind.CLOSE, ChangeKind.RETRACTION, ChangeKind.CORRECTION, ChangeKind.CORRECTION)
    book.changed("v", [ViewChange(n, 0, kind, key, None, None) for n, kind in enumerate(kinds)])
    dropped(book, 1)
    (only,) = book.to_json()
    assert (only["dropped"], only["corrected"]) == (1, 2)
    book.forget_changes("v")
    assert book.to_json()[0]["corrected"] == 0


def test_a_window_is_one_row_whatever_tells_of_it():
    """A correction of a sliding view has its start in the row alone; times may lie before 1970."""
    book = LateWindows()
    key = {"window_end": "1969-12-31T23:59:00.000001Z", "_partition": 0, "_offset": 7}
    row = {**key, "window_start": "1969-12-31T23:58:00.000001Z", "n": 2}
    book.changed(
        "v",
        [
            ViewChange(1, 0, ChangeKind.CORRECTION, key, None, row),
            ViewChange(2, 0, ChangeKind.CORRECTION, key, row, None),
        ],
    )
    place = {"view": "v", "window_start_us": -2 * MINUTE_US + 1, "window_end_us": -MINUTE_US + 1}
    book.dropped(headers(reason="late", topic="orders", partition=0, offset=1, **place))
    book.dropped(headers(reason="idle", topic="orders", rows=3, **place))
    (only,) = book.to_json()
    assert (only["dropped"], only["corrected"]) == (4, 2)
    assert (only["window_start"], only["window_end"]) == (
        "1969-12-31T23:58:00.000Z",
        "1969-12-31T23:59:00.000Z",
    )


def test_the_oldest_of_too_many_windows_go():
    book = LateWindows()
    for minute in range(600):
        dropped(book, minute, window=minute)
    windows = book.to_json()
    assert len(windows) == 500
    assert windows[-1]["window_start"] == "1970-01-01T01:40:00.000Z"


def test_a_record_is_counted_in_every_window_that_it_missed():
    book = LateWindows()
    place = {"window_start_us": 0, "window_end_us": MINUTE_US, "missed_windows": 3, "every_us": 20_000_000}
    book.dropped(headers(reason="late", view="v", topic="orders", partition=0, offset=1, **place))
    windows = [
        (each["window_start"][14:19], each["window_end"][14:19], each["dropped"]) for each in book.to_json()
    ]
    assert windows == [("00:40", "01:40", 1), ("00:20", "01:20", 1), ("00:00", "01:00", 1)]
