"""What a snapshot contains, whether a capture can go on, what becomes of a row: decided without a server."""

import orjson
import pytest

from headrace.capture import Change, Resnapshot
from headrace.capture.postgres.chunks import rounded_end
from headrace.capture.postgres.decode.pgoutput import UNCHANGED, Begin, Delete, Insert, Update
from headrace.capture.postgres.decode.rows import RowColumn, RowWriter
from headrace.capture.postgres.decode.values import Encoding, Kind
from headrace.capture.postgres.resuming import Overlap, Server, find_usable, why_not_resumed
from headrace.capture.postgres.setup import Slot
from headrace.capture.postgres.visibility import Recent, Visibility
from headrace.capture.postgres.wire.protocol import Frames, frame
from headrace.capture.postgres.wire.sql import identifier, literal
from headrace.errors import ConfigError, CorruptionError, RetriableError

# --- snapshots ------------------------------------------------------------------------------------


def test_a_snapshot_contains_what_had_ended_when_it_was_taken():
    taken = Visibility.parse("100:110:100,105")
    assert [taken.sees(each) for each in (99, 100, 104, 105, 109, 110, 5000)] == [
        True, False, True, False, True, False, False,
    ]  # fmt: skip


def test_transaction_ids_are_told_apart_where_they_wrap():
    epoch = 3 << 32
    taken = Visibility.parse(f"{epoch + 5}:{epoch + 10}:")
    assert taken.sees(2**32 - 3) and taken.sees(4) and not taken.sees(12)
    before = Visibility.parse(f"{epoch - 5}:{epoch - 2}:")
    assert before.sees(2**32 - 7) and not before.sees(1)


def test_a_snapshot_that_lacks_what_the_stream_has_delivered_is_too_old():
    recent = Recent()
    recent.add(105)
    assert recent.misses(Visibility.parse("100:110:105"))
    assert recent.misses(Visibility.parse("100:105:")), "committed in the log, and not even counted yet"
    assert not recent.misses(Visibility.parse("106:106:"))


def test_a_snapshot_that_cannot_be_read_is_refused():
    with pytest.raises(CorruptionError):
        Visibility.parse("1:2")


@pytest.mark.parametrize(
    ("end", "wanted"), [(8192 + 24, 8192), (8192 + 40, 8192), (8192, 8192), (8192 + 48, 8240)]
)
def test_the_end_of_the_log_is_not_awaited_behind_a_head_of_a_page_that_nobody_writes(end, wanted):
    assert rounded_end(end) == wanted


# --- going on -------------------------------------------------------------------------------------

POSITION = {"lsn": 5000, "system": "7", "timeline": 2, "shapes": {}}
HISTORY = "1\t0/1000\tbefore\n2\t0/2000\tno recovery target specified\n"  # 0x2000 is 8192


def slot(**changes) -> Slot:
    kept = {
        "plugin": "pgoutput",
        "database": "shop",
        "confirmed_lsn": 4000,
        "is_active": False,
        "is_lost": False,
    }
    return Slot(**{**kept, **changes})


def server(**changes) -> Server:
    return Server(**{"system": "7", "timeline": 2, "end_lsn": 9000, **changes})


def overlap(*, confirmed: int, last: tuple[int, int, int] | None = (7, 4500, 99)) -> Overlap:
    return Overlap({**POSITION, "last": last and list(last)}, confirmed)


LAST, OTHER = (Begin(final_lsn=4500, commit_time_us=99, xid=each) for each in (7, 8))


def test_the_log_is_the_one_that_was_read_if_it_begins_with_the_last_transaction():
    known = overlap(confirmed=4000)
    assert known.start_lsn == 4500 and known.is_repeated(LAST) and not known.why_other(5000)


@pytest.mark.parametrize("reached", [4500, 4800, 5000, 6000])
def test_the_log_is_another_one_if_the_last_transaction_is_not_where_it_was(reached):
    known = overlap(confirmed=4000)
    assert not known.is_repeated(OTHER) and "not the one that was read" in known.why_other(reached)


def test_behind_what_the_slot_has_confirmed_there_is_nothing_before_the_position():
    known = overlap(confirmed=4700)
    assert known.start_lsn == 4700 and known.why_other(4800) and not known.why_other(5000)
    nothing_read = overlap(confirmed=4700, last=None)
    assert nothing_read.start_lsn == 4700 and nothing_read.why_other(4800)


def test_a_position_that_names_no_transaction_is_gone_on_from():
    known = Overlap(POSITION, 4000)
    assert known.start_lsn == 5000 and not known.why_other(5000)


def test_a_capture_goes_on_where_it_stopped():
    assert why_not_resumed(POSITION, server(), slot()) == ""
    assert why_not_resumed(POSITION, server(timeline=3, history=HISTORY), slot()) == "", "after a failover"


@pytest.mark.parametrize(
    ("there", "kept", "reason"),
    [
        (server(system="8"), slot(), "another database cluster"),
        (server(), None, "slot is gone"),
        (server(), slot(is_lost=True), "max_slot_wal_keep_size"),
        (server(), slot(confirmed_lsn=5001), "somebody else"),
        (server(end_lsn=4999), slot(), "went back"),
        (server(timeline=1), slot(), "went back"),
        (server(timeline=3, history=HISTORY.replace("0/2000", "0/1001")), slot(), "went back"),
        (server(timeline=3, history=""), slot(), "went back"),
    ],
)
def test_a_capture_does_not_go_on_where_changes_may_be_missing(there, kept, reason):
    assert reason in why_not_resumed(POSITION, there, kept)


def test_a_slot_of_somebody_else_is_not_used():
    with pytest.raises(RetriableError, match="in use"):
        find_usable(slot(is_active=True), "headrace_a", "shop")
    with pytest.raises(ConfigError, match="another name"):
        find_usable(slot(plugin="wal2json"), "headrace_a", "shop")
    with pytest.raises(ConfigError):
        find_usable(slot(database="other"), "headrace_a", "shop")
    assert find_usable(slot(), "headrace_a", "shop") == slot()


# --- rows -----------------------------------------------------------------------------------------

TEXT, NUMBER = Encoding(Kind.TEXT), Encoding(Kind.INTEGER)


def column(name: str, encoding: Encoding) -> RowColumn:
    return RowColumn(name=name, type_oid=25, type_modifier=-1, encoding=encoding)


WRITER = RowWriter("public.t", 1, [column("v", TEXT), column("id", NUMBER), column("big", TEXT)], ["id"])


def test_a_row_is_written_in_the_order_of_its_columns():
    change = WRITER.inserted(Insert(1, (b'a"', b"7", None)), b"")
    assert change == Change("public.t", "c", b'{"id":7}', None, b'{"v":"a\\"","id":7,"big":null}')


def test_a_delete_has_what_the_replica_identity_keeps():
    change = WRITER.deleted(Delete(1, (None, b"7", None), False), b"")
    assert (change.op, change.key, change.before) == ("d", b'{"id":7}', b'{"v":null,"id":7,"big":null}')


def test_a_large_value_that_was_not_sent_again_is_left_out_and_named():
    (change,) = WRITER.updated(Update(1, None, False, (b"b", b"7", UNCHANGED)), b"")
    assert isinstance(change, Change)
    assert (change.after, change.unchanged) == (b'{"v":"b","id":7}', ("big",))


def test_a_large_value_that_was_not_sent_again_is_taken_from_the_row_before_where_that_is_whole():
    (change,) = WRITER.updated(Update(1, (b"a", b"7", b"huge"), True, (b"b", b"7", UNCHANGED)), b"")
    assert isinstance(change, Change) and not change.unchanged
    assert orjson.loads(change.after or b"") == {"v": "b", "id": 7, "big": "huge"}


def test_another_key_is_a_delete_and_a_create():
    gone, new = WRITER.updated(Update(1, (None, b"7", None), False, (b"a", b"8", b"x")), b"")
    assert isinstance(gone, Change) and isinstance(new, Change)
    assert (gone.op, gone.key, new.op, new.key) == ("d", b'{"id":7}', "c", b'{"id":8}')


def test_another_key_of_a_row_with_a_value_that_nobody_sent_makes_the_table_be_read_again():
    *_, last = WRITER.updated(Update(1, (None, b"7", None), False, (b"a", b"8", UNCHANGED)), b"")
    assert isinstance(last, Resnapshot) and "big" in last.reason


def test_the_first_column_may_be_left_out():
    row, missing = WRITER.json((UNCHANGED, b"7", None))
    assert (row, missing) == (b'{"id":7,"big":null}', ("v",))


def test_a_table_without_a_key_has_records_without_one():
    assert RowWriter("public.t", 1, WRITER.columns, ()).inserted(Insert(1, (b"", b"1", b"")), b"").key is None


def test_the_shape_of_a_table_tells_of_every_change_that_matters():
    def shape(oid=1, names=("v", "id"), type_oid=25, modifier=-1, key=("id",)):
        columns = [RowColumn(name=n, type_oid=type_oid, type_modifier=modifier, encoding=TEXT) for n in names]
        return RowWriter("t", oid, columns, key).shape

    others = [
        shape(oid=2),
        shape(names=("v", "id2"), key=("id2",)),
        shape(type_oid=20),
        shape(modifier=4),
        shape(key=()),
    ]
    assert shape() == shape() and shape() not in others


# --- bytes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 3, 7, 1000])
def test_messages_are_cut_wherever_they_are_torn(step):
    sent = [(b"D", b"x" * size) for size in (0, 1, 5, 300)]
    stream = b"".join(frame(*each) for each in sent)
    frames, got = Frames(), []
    for at in range(0, len(stream), step):
        frames.feed(stream[at : at + step])
        while (message := frames.next()) is not None:
            got.append(message)
    assert got == sent


@pytest.mark.parametrize("length", [0, 3, -1, 2**31 - 1])
def test_a_message_of_an_absurd_length_is_refused_before_it_is_awaited(length):
    frames = Frames()
    frames.feed(b"D" + length.to_bytes(4, "big", signed=True))
    with pytest.raises(CorruptionError):
        frames.next()


def test_nothing_ends_a_quoted_name_or_text():
    assert identifier('a"b') == '"a""b"'
    assert literal("it's") == "'it''s'"
    assert literal("a\\'b") == " E'a\\\\''b'"
