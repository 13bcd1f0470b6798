"""Records into rows, dead letters and declared watermarks: each one exactly one of these."""

import json
from datetime import UTC, datetime

import pytest

from headrace.client.watermarks import declare_watermark
from headrace.errors import RequestError
from headrace.records import Record, encode_batch, parse_watermark, stamp
from headrace.records.columns import lay_out
from headrace.streams.event_time import NO_WATERMARK, PartitionTime
from headrace.streams.feed.stamping import Stamper
from headrace.streams.spec import PROCESSING_TIME, StreamSpec

NOW = 1_767_225_600_000  # ms


def records(*given, first=0):
    """Records as they lie in a batch: each a dict of timestamp (ms), value, key, headers."""
    several = [
        Record(
            number,
            each.get("timestamp", NOW),
            each.get("key"),
            json.dumps(each["value"]).encode() if isinstance(each.get("value"), dict) else each.get("value"),
            each.get("headers", ()),
        )
        for number, each in enumerate(given)
    ]
    batch = encode_batch(several)
    stamp(batch, 0, first, 0)
    return lay_out(batch)


def stamper(now_us=None, **fields):
    given = {"schema": "at long, name string", "event_time": "at", **fields}
    return Stamper(StreamSpec(topic="t", **given), 3, PartitionTime(), now_us=now_us)


def at(ms, **more):
    return {"value": {"at": NOW + ms, "name": f"n{ms}"}, **more}


def dead(stamped):
    return [] if stamped.dead is None else [(r["offset"], r["reason"]) for r in stamped.dead.to_pylist()]


def test_a_row_has_its_fields_and_the_reserved_columns():
    stamped = stamper(lateness_us=1000).stamp(records(at(1), at(5), first=7))
    assert stamped.rows.to_pylist()[1] == {
        "at": NOW + 5,
        "name": "n5",
        "_partition": 3,
        "_offset": 8,
        "_timestamp": datetime.fromtimestamp(NOW / 1000, UTC),
        "_event_time": (NOW + 5) * 1000,
        "_watermark": (NOW + 1) * 1000 - 1000,
    }
    assert stamped.rows["_watermark"][0].as_py() == NO_WATERMARK
    assert (stamped.records, stamped.dead) == (2, None)


def test_keys_and_values_stay_beside_their_rows():
    given = records(at(1, key=b"a"), {"value": b"{", "key": b"b"}, at(2, key=b"c"))
    stamped = stamper().stamp(given)
    assert stamped.keys.column().to_pylist() == [b"a", b"c"]
    assert stamped.values.column().to_pylist() == [given.values[0], given.values[2]]
    assert stamped.rows["_offset"].to_pylist() == [0, 2]


def test_a_record_that_cannot_be_a_row_is_a_dead_letter_with_its_reason_and_moves_nothing():
    bad = [
        {"value": b"{"},
        {"value": {"name": "x"}},
        {"value": None},
        at(3_600_001),
        {"value": {"at": 10**17}},
        at(0, timestamp=-1),
    ]
    machine = stamper()
    stamped = machine.stamp(records(*bad, at(5), first=10))
    assert stamped.rows["_offset"].to_pylist() == [16]
    assert machine.time == PartitionTime((NOW + 5) * 1000)
    reasons = dict(dead(stamped))
    assert list(reasons) == list(range(10, 16))
    assert reasons[11] == "no event time: at is missing or null"
    assert reasons[10] == "unexpected end of JSON"
    assert reasons[12] == "value is null: a tombstone, with no event time"
    assert reasons[13] == "the event time is more than 3600 s ahead of the record's timestamp"
    assert reasons[14] == "no event time: at is outside the years 1 to 9999"
    assert reasons[15] == "the record has no timestamp"
    letter = stamped.dead.to_pylist()[3]
    assert (letter["partition"], letter["value"]) == (3, json.dumps(at(3_600_001)["value"]).encode())


def test_a_value_that_cannot_be_read_has_a_reason_it_shares_and_beside_it_one_of_its_own():
    bad = [
        {"value": {"at": "soon"}},
        {"value": {"at": "later\x1b[2J"}},
        {"value": {"name": "x"}},
        {"value": b'{"day": "%s"}' % (b"x" * 9000)},
    ]
    found = stamper(schema="at long, name string, day date").stamp(records(*bad)).dead.to_pylist()
    assert [each["reason"] for each in found] == [
        "at: expected long",
        "at: expected long",
        "no event time: at is missing or null",
        "day: not a date",
    ]
    assert [each["error"] for each in found] == [
        'at: expected long, got string "soon"',
        'at: expected long, got string "later\\u001b[2J"',
        None,
        f'day: not a date: "{60 * "x"}…"',
    ]


def test_a_row_whose_expression_gives_no_time_is_a_dead_letter_in_words_of_the_expression():
    text = "to_timestamp(concat(day, ' ', clock))"
    machine = stamper(schema="day string, clock string", event_time=text)
    given = [{"day": "2026-01-01", "clock": "00:00:05"}, {"day": "soon", "clock": "x"}, {"day": "2026-01-01"}]
    stamped = machine.stamp(records(*[{"value": each} for each in given], {"value": None}, {"value": b"{"}))
    assert stamped.rows["_event_time"].to_pylist() == [(NOW + 5000) * 1000]
    letters = [(each["reason"], each["error"]) for each in stamped.dead.to_pylist()]
    assert letters == [
        (f"no event time: {text} cannot be computed", "event_time: 'soon x' is not a timestamp"),
        (f"no event time: {text} is missing or null", None),
        ("value is null: a tombstone, with no event time", None),
        ("unexpected end of JSON", "unexpected end of JSON at byte 1"),
    ]


@pytest.mark.parametrize(
    ("unit", "number", "us"),
    [
        ("s", NOW // 1000, NOW * 1000),
        ("ms", NOW, NOW * 1000),
        ("us", NOW * 1000 + 7, NOW * 1000 + 7),
        ("ns", NOW * 1_000_000 + 7_999, NOW * 1000 + 7),
    ],
)
def test_numbers_are_times_in_the_unit_that_is_declared(unit, number, us):
    stamped = stamper(time_unit=unit).stamp(records({"value": {"at": number}}))
    assert stamped.rows["_event_time"].to_pylist() == [us]


def test_a_time_in_a_finer_unit_than_declared_is_told_from_one_that_is_merely_ahead():
    given = records({"value": {"at": NOW * 1000}}, {"value": {"at": NOW * 1_000_000}}, at(3_600_001))
    micros, nanos, ahead = (each["reason"] for each in stamper().stamp(given).dead.to_pylist())
    assert micros == "at: far ahead in ms, but of about now in us; declare time_unit='us'"
    assert nanos == "at: far ahead in ms, but of about now in ns; declare time_unit='ns'"
    assert ahead == "the event time is more than 3600 s ahead of the record's timestamp"


def test_the_event_time_may_be_a_field_inside_a_column():
    schema = "id string, payload struct<meta: struct<at: timestamp>>"
    given = [
        {"value": {"payload": {"meta": {"at": "2026-01-01T00:00:00.123456789Z"}}}},
        {"value": {"payload": None}},
    ]
    stamped = stamper(schema=schema, event_time="payload.meta.at").stamp(records(*given))
    assert stamped.rows["_event_time"].to_pylist() == [NOW * 1000 + 123_456]
    assert dead(stamped) == [(1, "no event time: payload.meta.at is missing or null")]


def test_a_lenient_stream_reads_what_is_nearly_of_its_schema():
    given = records(
        {"value": {"at": str(NOW), "name": 7}}, {"value": {"at": f"{NOW}.0"}}, {"value": {"at": "x"}}
    )
    stamped = stamper(lenient=True).stamp(given)
    assert stamped.rows["_event_time"].to_pylist() == [NOW * 1000] * 2
    assert stamped.rows["name"].to_pylist() == ["7", None]
    assert dead(stamped) == [(2, "at: expected long")]


def test_a_refused_watermark_has_no_error_of_a_value_that_nobody_reads():
    refused = {"value": b"{", "headers": [("headrace.watermark", b"soon")]}
    (letter,) = stamper().stamp(records(refused)).dead.to_pylist()
    assert "headrace.watermark is not milliseconds" in letter["reason"] and letter["error"] is None


def test_how_far_ahead_an_event_may_be_is_counted_from_the_records_own_timestamp():
    stamped = stamper(max_ahead_us=1000).stamp(records(at(1), at(2), at(2, timestamp=NOW + 1)))
    assert stamped.rows["_offset"].to_pylist() == [0, 2]


def test_the_records_timestamp_is_event_time_if_no_column_is_named():
    given = records({"timestamp": NOW + 1, "value": None}, {"timestamp": -1, "value": None})
    stamped = stamper(schema="name string", event_time=None).stamp(given)
    assert stamped.rows["_event_time"].to_pylist() == [(NOW + 1) * 1000]
    assert dead(stamped) == [(1, "the record has no timestamp")]


def test_a_device_whose_clock_is_wrong_is_put_right_by_when_it_sent():
    slow = {"value": {"at": 5_000, "sent": 8_000}, "timestamp": NOW}  # a clock that began in 1970
    stamped = stamper(schema="at long, sent long", sent_at="sent").stamp(
        records(slow, {"value": {"at": 1}}, {"value": {"at": NOW, "sent": NOW - 4_000_000}})
    )
    assert stamped.rows["_event_time"].to_pylist() == [(NOW - 3_000) * 1000]
    assert [offset for offset, _ in dead(stamped)] == [1, 2]
    assert "sent is missing" in dead(stamped)[0][1]
    assert "ahead of the record's timestamp" in dead(stamped)[1][1]


@pytest.mark.parametrize(
    ("kind", "text", "expected_ms"),
    [
        ("timestamp", '"2026-01-01T00:00:00Z"', NOW),
        ("timestamp", '"2026-01-01T01:00:00.250+01:00"', NOW + 250),
        ("timestamp_ntz", '"2026-01-01T00:00:00"', NOW),
        ("date", '"2026-01-01"', NOW),
        ("long", str(NOW), NOW),
        ("int", "1000", 1000),
    ],
)
def test_event_times_are_timestamps_dates_or_milliseconds(kind, text, expected_ms):
    given = records({"value": f'{{"at": {text}}}'.encode()})
    stamped = stamper(schema=f"at {kind}").stamp(given)
    assert stamped.rows["_event_time"].to_pylist() == [expected_ms * 1000]


def test_processing_time_is_the_moment_of_the_plan():
    stamped = stamper(schema="name string", event_time=PROCESSING_TIME, now_us=77).stamp(
        records(at(1), at(2))
    )
    assert stamped.rows["_event_time"].to_pylist() == [77, 77]


def test_a_declared_watermark_counts_from_its_place_on_and_is_no_row():
    mark = {"headers": [("other", b"1"), ("headrace.watermark", str(NOW + 100).encode())]}
    machine = stamper()
    stamped = machine.stamp(records(at(1), mark, at(2, headers=[("x", None)]), first=4))
    assert stamped.rows["_offset"].to_pylist() == [4, 6]
    assert stamped.rows["_watermark"].to_pylist()[1] == (NOW + 100) * 1000
    assert machine.time == PartitionTime((NOW + 2) * 1000, (NOW + 100) * 1000)
    assert (stamped.records, stamped.dead_count) == (3, 0)


def test_a_declaration_in_a_part_of_a_batch_is_found_where_it_is():
    mark = {"headers": [("headrace.watermark", str(NOW + 100).encode())]}
    whole = records(at(0, headers=[("a", b"b")]), at(1), mark, at(2))
    stamped = stamper().stamp(whole.at(slice(1, None)))
    assert stamped.rows["_offset"].to_pylist() == [1, 3]
    assert stamped.rows["_watermark"].to_pylist()[1] == (NOW + 100) * 1000


@pytest.mark.parametrize(
    "text", [b"", b"soon", None, b"1e5", b"9" * 30, b" 5", str(NOW + 4_000_000).encode()]
)
def test_a_declaration_that_cannot_be_believed_is_a_dead_letter(text):
    machine = stamper()
    stamped = machine.stamp(records({"headers": [("headrace.watermark", text)]}))
    assert (stamped.rows.num_rows, stamped.dead_count, machine.time) == (0, 1, PartitionTime())


def test_columns_about_the_record_are_there_when_asked_for():
    given = records(at(1, key=b"k", headers=[("h", b"v")]), first=5)
    stamped = stamper(
        schema="at long, _topic string, _key binary, _value binary, "
        "_headers array<struct<key:string,value:binary>>, _offset long"
    ).stamp(given)
    [row] = stamped.rows.to_pylist()
    assert (row["_topic"], row["_key"], row["_offset"]) == ("t", b"k", 5)
    assert row["_headers"] == [{"key": "h", "value": b"v"}]
    assert json.loads(row["_value"])["at"] == NOW + 1


def test_raw_values_stay_as_they_are():
    stamped = stamper(schema="_value binary", decoder="raw", event_time=None).stamp(
        records({"value": b"\xff{"})
    )
    assert stamped.rows["_value"].to_pylist() == [b"\xff{"]


def test_a_watermark_is_sent_as_a_header_of_a_record_without_a_value():
    sent = []

    class Producer:
        def produce(self, *args, **fields):
            sent.append((args, fields))

    declare_watermark(Producer(), "t", datetime(2026, 1, 1, tzinfo=UTC), partitions=[0, 2])
    assert [fields["partition"] for _, fields in sent] == [0, 2]
    assert sent[0][1]["headers"] == [("headrace.watermark", str(NOW).encode())]
    assert parse_watermark(str(NOW).encode()) == NOW * 1000
    with pytest.raises(RequestError, match="no time zone"):
        declare_watermark(Producer(), "t", datetime(2026, 1, 1), partitions=[0])
