"""DescribeLogDirs, spoken by hand."""

import struct

from headrace.client.log_dirs import decode_sizes, encode_request, partition_sizes


def text(value):
    return struct.pack(">h", len(value)) + value.encode()


def answer(*directories):
    """An answer of version 1: (path, {topic: [(partition, size, is_future)]})."""
    body = struct.pack(">iii", 1, 0, len(directories))
    for path, topics in directories:
        body += struct.pack(">h", 0) + text(path) + struct.pack(">i", len(topics))
        for topic, partitions in topics.items():
            body += text(topic) + struct.pack(">i", len(partitions))
            for index, size, future in partitions:
                body += struct.pack(">iqq?", index, size, 0, future)
    return body


def test_sizes_of_all_directories_are_read():
    data = answer(
        ("/a", {"orders": [(0, 10, False), (1, 20, False)]}), ("/b", {"clicks": [(0, 2**40, False)]})
    )
    assert decode_sizes(data) == {("orders", 0): 10, ("orders", 1): 20, ("clicks", 0): 2**40}


def test_a_copy_being_moved_is_not_counted():
    assert decode_sizes(answer(("/a", {"orders": [(0, 10, False)]}), ("/b", {"orders": [(0, 7, True)]}))) == {
        ("orders", 0): 10
    }


def test_the_frame_says_its_own_length():
    frame = encode_request(correlation_id=7)
    assert struct.unpack(">ihhi", frame[:12]) == (len(frame) - 4, 35, 1, 7)


def test_a_broker_that_cannot_be_asked_leaves_its_sizes_unknown(unused_port):
    assert partition_sizes([("127.0.0.1", unused_port)]) == {}
