"""Records told from offsets, within what may be read for it."""

import pytest
from broker.conftest import Peer, batch_of

from headrace.client import Connection, RawFetcher
from headrace.client.topics import Bounds, CountLimits, RecordCounter
from headrace.records import Marker, Record, encode_batch
from headrace.testing.broker import running_broker
from headrace.wire import Api

PLENTY = CountLimits(bytes=1 << 20, partitions=100)


class Topics:
    """A broker whose topics a counter counts."""

    def __init__(self, broker, fetcher):
        self.broker, self.fetcher = broker, fetcher
        self.peer = Peer(broker.port)
        self.counter = RecordCounter(1 << 20)
        self.compacted = set()

    def transaction(self, topic, count, *, commit=True, partition=0):
        """Records, and the marker that ends them."""
        log = self.broker.services.topics.partition(topic, partition).log
        known = {each.producer_id: each for each in log.producers()}
        sequence = known[7].last_sequence + 1 if 7 in known else 0
        records = [Record(n, 1000, b"k%d" % n, bytes(100)) for n in range(count)]
        batch = encode_batch(
            records, producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        log.append(bytearray(batch), now_ms=1000)
        log.append_marker(Marker(7, 0, 0, commit=commit), now_ms=1000)
        log.commit()

    def counts(self, *topics, limits=PLENTY, sizes=None, counter=None):
        logs = {
            (topic, index): self.broker.services.topics.partition(topic, index).log
            for topic in topics
            for index in range(len(self.broker.services.topics.named(topic).partitions))
        }
        counted = (counter or self.counter).count(
            self.fetcher,
            {each: Bounds(start=log.start_offset, end=log.high_watermark) for each, log in logs.items()},
            {each: log.last_stable_offset for each, log in logs.items()},
            {each: log.size_bytes for each, log in logs.items()} if sizes is None else sizes,
            limits,
            compacted=self.compacted,
        )
        return [tuple(counted[each]) for each in logs]


@pytest.fixture
def topics(tmp_path):
    with running_broker(tmp_path) as broker, fetching(broker) as fetcher:
        made = Topics(broker, fetcher)
        yield made
        made.peer.close()


def fetching(broker, retry_timeout_ms=60_000):
    connection = Connection(bootstrap_servers=f"127.0.0.1:{broker.port}", retry_timeout_ms=retry_timeout_ms)
    return RawFetcher(connection)


def test_markers_aborted_records_and_deleted_ones_do_not_count(topics):
    topics.peer.create("t", 2)
    for number in range(10):
        topics.transaction("t", 28, commit=number != 3)
    assert topics.counts("t") == [(9 * 28, True), (0, True)]
    topics.broker.services.topics.partition("t", 0).log.delete_before(29)
    assert topics.counts("t") == [(8 * 28, True), (0, True)]
    topics.transaction("t", 5)
    assert topics.counts("t") == [(8 * 28 + 5, True), (0, True)]


def test_the_smallest_are_counted_first_and_no_more_than_may_be_read(topics):
    for topic, count in [("large", 300), ("small", 3), ("middle", 30)]:
        topics.peer.create(topic)
        topics.transaction(topic, count)
    size = topics.broker.services.topics.partition("middle", 0).log.size_bytes
    enough = CountLimits(bytes=2 * size, partitions=100)
    assert topics.counts("large", "small", "middle", limits=enough) == [(301, False), (3, True), (30, True)]
    one = CountLimits(bytes=1 << 20, partitions=1)
    again = RecordCounter(1 << 20)
    assert topics.counts("large", "small", "middle", limits=one, counter=again) == [
        (301, False),
        (3, True),
        (31, False),
    ]
    # What is known is not read again: with each look there is more.
    assert topics.counts("large", "small", "middle", limits=one, counter=again)[2] == (30, True)
    assert topics.counts("large", "small", "middle", limits=one, counter=again)[0] == (300, True)


def test_a_partition_of_unknown_size_is_read_as_far_as_the_limit(topics):
    topics.peer.create("t")
    topics.transaction("t", 10)
    assert topics.counts("t", sizes={}) == [(10, True)]


def test_what_an_open_transaction_wrote_may_be_records(topics):
    topics.peer.create("t")
    topics.peer.produce("t", batch_of(b"sure"))
    log = topics.broker.services.topics.partition("t", 0).log
    batch = encode_batch(
        [Record(0, 1000, None, b"x")], producer_id=9, producer_epoch=0, base_sequence=0, transactional=True
    )
    log.append(bytearray(batch), now_ms=1000)
    log.commit()
    assert topics.counts("t") == [(2, False)]
    log.append_marker(Marker(9, 0, 0, commit=True), now_ms=1000)
    log.commit()
    assert topics.counts("t") == [(2, True)]


def test_what_compaction_removes_is_noticed(topics):
    topics.peer.create("t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    topics.compacted.add("t")
    for _ in range(10):
        topics.transaction("t", 5)
    assert topics.counts("t") == [(50, True)]
    log = topics.broker.services.topics.partition("t", 0).log
    log.roll()
    assert log.compact(now_ms=1 << 41) > 0
    assert topics.counts("t") == [(5, True)]


def test_a_topic_that_was_made_anew_is_counted_anew(topics):
    topics.peer.create("t")
    topics.transaction("t", 5)
    assert topics.counts("t") == [(5, True)]
    deletion = {"topics": [{"name": "t", "topic_id": None}], "timeout": 10_000}
    assert topics.peer.request(Api.DELETE_TOPICS, 6, deletion).responses[0].error_code == 0
    topics.peer.create("t")
    topics.peer.produce("t", batch_of(*[b"x"] * 6))
    assert topics.counts("t") == [(6, True)]


def test_one_that_cannot_be_read_keeps_no_other_from_being_counted(topics):
    for topic in ("damaged", "fine"):
        topics.peer.create(topic)
        topics.transaction(topic, 5)
    (file,) = topics.broker.services.topics.partition("damaged", 0).log.path.glob("*.log")
    data = bytearray(file.read_bytes())
    data[70] ^= 1
    file.write_bytes(data)
    with fetching(topics.broker, retry_timeout_ms=2_000) as topics.fetcher:  # tried again for so long
        assert topics.counts("damaged", "fine") == [(6, False), (5, True)]


def test_no_more_ranges_are_kept_than_allowed(topics):
    for topic in ("a", "b"):
        topics.peer.create(topic)
        for _ in range(10):
            topics.transaction(topic, 1)
    counter = RecordCounter(1 << 20, most_ranges=15)
    assert topics.counts("a", counter=counter) == [(10, True)]
    assert topics.counts("b", counter=counter) == [(10, True)]
    assert len(counter._known) == 1
    assert topics.counts("a", counter=counter) == [(10, True)]
