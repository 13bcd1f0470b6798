"""Whatever a server sends, reading it ends with a change or a CorruptionError, in little memory.

`HEADRACE_FUZZ_SEED` repeats a campaign; a seed is printed with every run.
"""

import os
import random
import struct
import tracemalloc

import pytest

from headrace.capture.postgres.decode.pgoutput import Transactions, read_copy_data
from headrace.capture.postgres.decode.values import Encoding, Kind, encode
from headrace.capture.postgres.wire.protocol import Frames, read_fields, read_raw_row
from headrace.errors import CorruptionError

MIB = 1 << 20
OID = 16384


def row(*values: bytes | None) -> bytes:
    cells = (b"n" if each is None else b"t" + struct.pack("!i", len(each)) + each for each in values)
    return struct.pack("!h", len(values)) + b"".join(cells)


def begin(lsn: int) -> bytes:
    return b"B" + struct.pack("!QqI", lsn, 1, 700)


def commit(lsn: int) -> bytes:
    return b"C\0" + struct.pack("!QQq", lsn, lsn + 8, 1)


RELATION = (
    b"R" + struct.pack("!I", OID) + b"public\0t\0d" + struct.pack("!h", 2)
    + b"\1id\0" + struct.pack("!Ii", 23, -1) + b"\0v\0" + struct.pack("!Ii", 25, -1)
)  # fmt: skip
TABLE = struct.pack("!I", OID)
WELL_FORMED = [
    begin(100),
    RELATION,
    b"Y" + struct.pack("!I", 90000) + b"public\0mood\0",
    b"O" + struct.pack("!Q", 7) + b"elsewhere\0",
    b"I" + TABLE + b"N" + row(b"1", b"one"),
    b"U" + TABLE + b"N" + row(b"1", None),
    b"U" + TABLE + b"K" + row(b"1", None) + b"N" + row(b"2", b"two"),
    b"U" + TABLE + b"O" + row(b"2", b"two") + b"N" + struct.pack("!h", 2) + b"t\0\0\0\0012u",
    b"D" + TABLE + b"K" + row(b"2", None),
    b"T" + struct.pack("!IB", 1, 3) + TABLE,
    b"M\1" + struct.pack("!Q", 9) + b"prefix\0" + struct.pack("!i", 3) + b"abc",
    commit(100),
]


def mutated(chance: random.Random) -> list[bytes]:
    """A transaction that is cut, reordered, doubled, or has bytes and lengths changed."""
    messages = list(WELL_FORMED)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(messages))
        match chance.randrange(6):
            case 0:
                messages[at] = messages[at][: chance.randrange(len(messages[at]) + 1)]
            case 1:
                chance.shuffle(messages)
            case 2:
                messages.insert(at, chance.choice(messages))
            case 3:
                del messages[at]
                messages = messages or [b""]
            case 4:
                changed = bytearray(messages[at] or b"\0")
                changed[chance.randrange(len(changed))] = chance.randrange(256)
                messages[at] = bytes(changed)
            case _:
                changed, absurd = bytearray(messages[at]), chance.choice((-1, 2**31 - 1, 2**16, -(2**31)))
                place = chance.randrange(len(changed) + 1)
                changed[place : place + 4] = struct.pack("!i", absurd)
                messages[at] = bytes(changed)
    return messages


def read_all(messages: list[bytes]) -> int:
    transactions = Transactions()
    return sum(transactions.read(each) is not None for each in messages)


def attempt(chance: random.Random) -> bool:
    """Whether one case was read; anything but a CorruptionError passes through."""
    messages = mutated(chance)
    noise = chance.randbytes(chance.randrange(40))
    attempts = [
        lambda: read_all(messages),
        lambda: read_copy_data(noise),
        lambda: read_raw_row(noise),
        lambda: read_fields(noise),
        lambda: _cut(noise),
        lambda: encode(Encoding(chance.choice(list(Kind)), chance.random() < 0.3), _nearly(chance)),
    ]
    refused = 0
    for each in attempts:
        try:
            each()
        except CorruptionError:
            refused += 1
    return refused == 0


def _cut(noise: bytes) -> None:
    frames = Frames()
    frames.feed(noise)
    while frames.next() is not None:
        pass


def _nearly(chance: random.Random) -> bytes:
    """Something like a value: the letters of dates, arrays, numbers and hexadecimal digits."""
    letters = b'0123456789-+:. {},"\\xNULtfeBCday'
    return bytes(chance.choice(letters) for _ in range(chance.randrange(24)))


def campaign(cases: int) -> None:
    seed = int(os.environ.get("HEADRACE_FUZZ_SEED", random.SystemRandom().randrange(2**32)))
    print(f"HEADRACE_FUZZ_SEED={seed}")
    chance = random.Random(seed)
    tracemalloc.start()
    try:
        read = sum(attempt(chance) for _ in range(cases // 10))
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        read += sum(attempt(chance) for _ in range(cases - cases // 10))
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - kept < MIB // 2, "memory grows with what cannot be read"
    assert peak - kept < 8 * MIB, "a length is believed before it is compared with what there is"
    assert read < cases, "nothing was refused"


def test_a_transaction_as_the_server_writes_it_is_read():
    assert read_all(WELL_FORMED) == len(WELL_FORMED)


def test_changes_that_are_torn_or_out_of_order_are_refused_and_never_misread():
    campaign(3_000)


@pytest.mark.slow
def test_a_hundred_thousand_of_them_leave_no_trace():
    campaign(100_000)


@pytest.mark.parametrize(
    "order",
    [
        (4,), (0, 4), (0, 1, 0), (11,), (0, 1, 4, 11, 4), (0, 9, 11),
    ],
    ids=["no transaction", "no table", "two at once", "no beginning", "behind its end", "unknown table"],
)  # fmt: skip
def test_messages_out_of_their_order_are_refused(order):
    with pytest.raises(CorruptionError, match="do not fit together"):
        read_all([WELL_FORMED[each] for each in order])
