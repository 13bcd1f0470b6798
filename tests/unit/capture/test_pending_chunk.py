"""A chunk of a snapshot between being read and being written."""

import orjson

from headrace.capture import Change, Chunk, Transaction
from headrace.capture.snapshot import PendingChunk


def row(number: int, **values: object) -> Change:
    return Change("public.t", "r", b'{"id":%d}' % number, None, orjson.dumps({"id": number, **values}))


def transaction(number: int) -> Transaction:
    return Transaction(id=str(number), position={}, committed_us=0, changes=())


def pending(*rows: Change) -> PendingChunk:
    chunk = Chunk(
        table="public.t",
        rows=rows,
        cursor=None,
        read_us=0,
        reached=lambda _: True,
        sees=lambda each: int(each.id) < 10,
    )
    return PendingChunk(chunk)


def update(number: int, unchanged: tuple[str, ...] = (), **values: object) -> Change:
    after = orjson.dumps({"id": number, **values})
    return Change("public.t", "u", b'{"id":%d}' % number, None, after, b"", unchanged)


def test_a_change_that_the_chunk_does_not_contain_replaces_its_row():
    chunk = pending(row(1, v="a"), row(2, v="b"))
    chunk.begin(transaction(11))
    assert chunk.note(update(1, v="c")) == update(1, v="c")
    assert list(chunk.rows()) == [row(2, v="b")]


def test_a_change_that_the_chunk_contains_replaces_nothing():
    chunk = pending(row(1, v="a"))
    chunk.begin(transaction(9))
    chunk.note(update(1, v="older"))
    assert list(chunk.rows()) == [row(1, v="a")]


def test_a_change_that_lacks_values_takes_them_from_the_row_that_it_replaces():
    chunk = pending(row(1, v="a", big="large"))
    chunk.begin(transaction(11))
    written = chunk.note(update(1, ("big",), v="c"))
    assert orjson.loads(written.after or b"") == {"id": 1, "v": "c", "big": "large"}
    assert written.unchanged == ()
    assert chunk.note(update(1, ("big",), v="d")).unchanged == ("big",), "written already by the one before"
