"""Bytes of partitions, from what brokers answer to DescribeLogDirs."""

from types import SimpleNamespace

from headrace.client import Connection
from headrace.client.topics.broker_requests import partition_sizes, sizes_in


def answer(*directories):
    """An answer: for each directory {topic: [(partition, size, is_future)]}."""
    return SimpleNamespace(results=[SimpleNamespace(topics=list(topics(each))) for each in directories])


def topics(directory):
    for name, partitions in directory.items():
        told = [
            SimpleNamespace(partition_index=index, partition_size=size, is_future_key=future)
            for index, size, future in partitions
        ]
        yield SimpleNamespace(name=name, partitions=told)


def test_sizes_of_all_directories_are_read():
    told = answer({"orders": [(0, 10, False), (1, 20, False)]}, {"clicks": [(0, 2**40, False)]})
    assert sizes_in(told) == {("orders", 0): 10, ("orders", 1): 20, ("clicks", 0): 2**40}


def test_a_copy_being_moved_is_not_counted():
    told = answer({"orders": [(0, 10, False)]}, {"orders": [(0, 7, True)]})
    assert sizes_in(told) == {("orders", 0): 10}


def test_a_broker_that_cannot_be_asked_leaves_its_sizes_unknown(unused_port):
    assert partition_sizes(Connection(), [("127.0.0.1", unused_port)]) == {}
