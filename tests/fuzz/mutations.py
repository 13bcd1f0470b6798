"""What is done to a valid request; each returns all the bytes to send, the frame's length included."""

import random
import struct

from frame_writer import Array, FrameWriter, Length, uvarint

_length = struct.Struct(">i")

# Lengths that no honest client sends, by the way they are written.
ABSURD = {
    "int16": [struct.pack(">h", n) for n in (-32768, -2, -1, 0, 32767)],
    "int32": [struct.pack(">i", n) for n in (-(2**31), -2, -1, 0, 65536, 2**24, 2**31 - 1)],
    "uvarint": [uvarint(n) for n in (0, 65536, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**63)]
    + [b"\xff" * 9 + b"\x01", b"\xff" * 40],
}


def framed(data: bytes) -> bytes:
    return _length.pack(len(data)) + data


def with_length(request: FrameWriter, length: Length, absurd: bytes) -> bytes:
    """The request with one of its lengths replaced, the frame's own length being right."""
    data = request.data
    return framed(data[: length.position] + absurd + data[length.position + length.size :])


def stuffed(request: FrameWriter, array: Array, size: int) -> bytes:
    """The request with one array's only item repeated until the frame has about `size` bytes; well-formed."""
    data, length = request.data, array.length
    item = bytes(data[array.start : array.end])
    count = (size - len(data)) // max(len(item), 1)
    encoded = uvarint(count + 1) if length.form == "uvarint" else struct.pack(">i", count)
    return framed(data[: length.position] + encoded + item * count + data[array.end :])


def absurd_length(request: FrameWriter, choose: random.Random) -> bytes:
    length = choose.choice(request.lengths)
    return with_length(request, length, choose.choice(ABSURD[length.form]))


def flipped_bits(request: FrameWriter, choose: random.Random) -> bytes:
    data = bytearray(request.data)
    for _ in range(choose.choice([1, 1, 2, 8])):
        data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
    return framed(data)


def cut_short(request: FrameWriter, choose: random.Random) -> bytes:
    return framed(request.data[: choose.randrange(len(request.data))])


def with_more_behind(request: FrameWriter, choose: random.Random) -> bytes:
    return framed(request.data + choose.randbytes(choose.randrange(1, 64)))


def with_bytes_replaced(request: FrameWriter, choose: random.Random) -> bytes:
    data = bytearray(request.data)
    start = choose.randrange(4, len(data))
    size = choose.randrange(1, 16)
    data[start : start + size] = choose.randbytes(choose.randrange(16))
    return framed(data)


def with_a_part_repeated(request: FrameWriter, choose: random.Random) -> bytes:
    start, end = sorted(choose.sample(range(len(request.data) + 1), 2))
    return framed(
        request.data[:end] + request.data[start:end] * choose.choice([1, 3, 50]) + request.data[end:]
    )


def of_an_unknown_version(request: FrameWriter, choose: random.Random) -> bytes:
    version = choose.choice([-1, -32768, 32767, 99, choose.randrange(-32768, 32768)])
    return framed(request.data[:2] + struct.pack(">h", version) + request.data[4:])


def of_an_unknown_api(request: FrameWriter, choose: random.Random) -> bytes:
    key = choose.choice([-1, 4, 5, 6, 7, 999, 32767, -32768, choose.randrange(-32768, 32768)])
    return framed(struct.pack(">h", key) + request.data[2:])


def random_bytes_in_a_frame(request: FrameWriter, choose: random.Random) -> bytes:
    return framed(choose.randbytes(choose.randrange(0, 300)))


def random_bytes(request: FrameWriter, choose: random.Random) -> bytes:
    return choose.randbytes(choose.randrange(1, 300))


def with_an_absurd_frame_length(request: FrameWriter, choose: random.Random) -> bytes:
    size = choose.choice([-1, -(2**31), 0, 1, 7, 2**31 - 1, 2**30, 200 << 20, len(request.data) // 2])
    return _length.pack(size) + request.data


def half_a_frame(request: FrameWriter, choose: random.Random) -> bytes:
    whole = framed(request.data)
    return whole[: choose.randrange(1, len(whole))]


def unharmed(request: FrameWriter, choose: random.Random) -> bytes:
    return framed(request.data)


MUTATIONS = (
    (absurd_length, 6),
    (flipped_bits, 6),
    (cut_short, 2),
    (with_more_behind, 1),
    (with_bytes_replaced, 3),
    (with_a_part_repeated, 2),
    (of_an_unknown_version, 1),
    (of_an_unknown_api, 1),
    (random_bytes_in_a_frame, 1),
    (random_bytes, 1),
    (with_an_absurd_frame_length, 1),
    (half_a_frame, 1),
    (unharmed, 1),
)
