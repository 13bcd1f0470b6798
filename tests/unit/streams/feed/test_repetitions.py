"""Which records that were sent again count, and which repeat one that does."""

import pytest
from tests.unit.streams.feed.test_stamping import NOW, at, dead, records, stamper

SOURCE, OWNER = "headrace.redriven.source", "headrace.redriven.owner"


def sent_again(source, owner="q1", **more):
    return at(1, headers=[("own", b"x"), (SOURCE, source.encode()), (OWNER, owner.encode())], **more)


def rows(stamped):
    return stamped.rows["_offset"].to_pylist()


def test_what_the_query_gave_up_itself_counts():
    stamped = stamper(letters_of=("q2", "q1")).stamp(records(at(0), sent_again("t:3:5"), first=20))
    assert (rows(stamped), stamped.repeated, stamped.records) == ([20, 21], 0, 2)


@pytest.mark.parametrize("owner", ["q0", "some-queue", ""])
def test_what_it_could_read_where_it_was_is_a_repetition_and_moves_no_watermark(owner):
    reader = stamper(letters_of=("q1",))
    stamped = reader.stamp(records(at(0), sent_again("t:3:5", owner), at(2), first=20))
    assert (rows(stamped), stamped.repeated, dead(stamped)) == ([20, 22], 1, [])
    alone = stamper(letters_of=("q1",))
    alone.stamp(records(sent_again("t:3:5", owner)))
    assert alone.time == stamper().time


def test_what_stands_before_the_query_began_counts():
    stamped = stamper(begins=((2, 99), (3, 6))).stamp(records(sent_again("t:3:5"), sent_again("t:3:6")))
    assert (rows(stamped), stamped.repeated) == ([0], 1)


@pytest.mark.parametrize(
    "source", ["other:3:5", "t:2:5", "t:3:", "t:3:-1", "t:x:5", "t", ":3:5", "", "t:3:5:6"]
)
def test_what_came_from_elsewhere_or_does_not_say_from_where_counts(source):
    stamped = stamper().stamp(records(sent_again(source)))
    assert (rows(stamped), stamped.repeated) == ([0], 0)


def test_what_still_cannot_be_read_is_dead_again():
    stamped = stamper().stamp(records({**sent_again("t:3:5"), "value": b"oops"}, sent_again("t:3:6")))
    assert [offset for offset, _ in dead(stamped)] == [0]
    assert (rows(stamped), stamped.repeated) == ([], 1)


def test_a_declared_watermark_is_one_also_when_it_was_sent_again():
    declared = {"value": None, "headers": [("headrace.watermark", str(NOW).encode()), (SOURCE, b"t:3:5")]}
    reader = stamper()
    stamped = reader.stamp(records(declared))
    assert (rows(stamped), stamped.repeated, dead(stamped)) == ([], 0, [])
    assert reader.time != stamper().time
