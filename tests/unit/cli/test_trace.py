"""Records behind rows, and rows behind records, as people and programs see them."""

from headrace.app.verify.trace import RecordBehind, RecordPlace
from headrace.cli.show.trace import behind_data, render_affected, render_reason
from headrace.records import Record

EVENT = Record(4, 1_767_603_600_000, b"b-1", b'{"type": "Moved", "data": {"amount": 5}}', ())
PLACE = RecordPlace("ledger.book.events", 2, 4)


def reason(*records, count=None):
    found = [behind_data(each) for each in records]
    return {"view": "balances", "row": {"account": "a"}, "count": count or len(found), "records": found}


def test_an_event_is_shown_with_its_command_and_who_sent_it():
    behind = RecordBehind(PLACE, EVENT, {"command": "c-1", "command_name": "Post", "by": "ann"})
    found = behind_data(behind)
    assert (found["command"], found["by"]) == ({"id": "c-1", "name": "Post"}, "ann")
    assert (found["time"], found["key"]) == ("2026-01-05T09:00:00.000Z", "b-1")
    text = render_reason(reason(behind, count=3))
    assert "ledger.book.events:2:4" in text and '{"Moved": {"amount": 5}}' in text
    assert "Post" in text and "ann" in text and "and 2 more" in text


def test_a_record_that_is_gone_or_no_json_is_shown_as_such():
    gone = behind_data(RecordBehind(PLACE, None, {}))
    assert (gone["time"], gone["value"], gone["command"]) == (None, None, None)
    plain = RecordBehind(PLACE, Record(4, 0, None, b"\xff{", ()), {})
    assert behind_data(plain)["value"] == "\ufffd{"
    text = render_reason(reason(RecordBehind(PLACE, None, {}), plain))
    assert "gone" in text and "command" not in text


def test_a_place_is_read_from_its_text_whatever_the_topic_is_called():
    assert RecordPlace.parse("a:b:2:4") == RecordPlace("a:b", 2, 4)
    assert RecordPlace.parse(str(PLACE)) == PLACE


def test_rows_are_listed_by_view_and_key():
    rows = [{"view": "balances", "key": {"account": "a", "n": 1}}]
    text = render_affected({"record": str(PLACE), "rows": rows, "notes": ["other: not yet"]})
    assert "balances" in text and "account a, n 1" in text and "other: not yet" in text
    assert "no row has anything of" in render_affected({"record": str(PLACE), "rows": [], "notes": []})
