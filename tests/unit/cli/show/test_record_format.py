"""Records by a format with kcat's letters."""

import pytest

from headrace.cli.failures import UsageError
from headrace.cli.records.lines import ReadRecord
from headrace.cli.show.record_format import parse_format

RECORD = ReadRecord(
    topic="orders",
    partition=2,
    offset=41,
    timestamp_ms=1_700_000_000_123,
    timestamp_type="create",
    key=b"alice",
    value=b'{"a": 1}\xff',
    headers=(("trace", b"6f"), ("none", None)),
)
EMPTY = ReadRecord(
    topic="t",
    partition=0,
    offset=0,
    timestamp_ms=-1,
    timestamp_type="create",
    key=None,
    value=None,
    headers=(),
)


@pytest.mark.parametrize(
    ("text", "record", "written"),
    [
        (r"%t %p %o %T\n", RECORD, b"orders 2 41 1700000000123\n"),
        ("%k=%s;%K,%S", RECORD, b'alice={"a": 1}\xff;5,9'),
        ("%k=%s;%K,%S", EMPTY, b"=;-1,-1"),
        ("%h", RECORD, b"trace=6f,none=NULL"),
        ("%R", RECORD, b"\0\0\0\x09"),
        (r"100%%\t\x41\\é", RECORD, b"100%\tA\\" + "é".encode()),
    ],
)
def test_letters_and_escapes_are_kcat_s(text, record, written):
    assert parse_format(text)(record) == written


@pytest.mark.parametrize("text", ["%q", "x%", r"\q", "\\", r"\x4"])
def test_what_means_nothing_is_refused_with_what_there_is(text):
    with pytest.raises(UsageError, match=r"is not known; use %t %p"):
        parse_format(text)
