"""Cases of listing offsets, deleting records, and leader epochs."""

from headrace.records import Record, encode_batch
from headrace.wire import Api
from parity.case import case
from parity.stage import TIME_MS, batch_of, code, topics_of

LIST, DELETE, EPOCHS = "list offsets", "delete records", "leader epochs"
SPECIAL = {"latest": -1, "earliest": -2, "max timestamp": -3, "earliest local": -4, "latest tiered": -5}


def timed(log):
    """A topic whose records are 0, 10, 5 and 20 seconds after the start; two batches."""
    topic = log.topic()
    for times in ((0, 10), (5, 20)):
        batch = encode_batch([Record(0, TIME_MS + 1000 * each, None, b"v") for each in times])
        log.produce(topic, bytes(batch))
    return topic


@case(LIST, "latest, earliest, max timestamp and the tiered ones on an empty partition")
def empty(log):
    topic = log.topic()
    return [log.list_offset(topic, timestamp, version=9) for timestamp in SPECIAL.values()]


@case(LIST, "latest, earliest, max timestamp and the tiered ones on a filled partition")
def filled(log):
    topic = timed(log)
    return [log.list_offset(topic, timestamp, version=9) for timestamp in SPECIAL.values()]


@case(LIST, "by time: the first record with that timestamp or a later one")
def by_time(log):
    topic = timed(log)
    return [log.list_offset(topic, TIME_MS + 1000 * after) for after in (-5, 0, 1, 5, 10, 11, 20, 21)]


@case(LIST, "by time on an empty partition: none")
def by_time_empty(log):
    return log.list_offset(log.topic(), TIME_MS)


@case(LIST, "the record with the largest timestamp, in the middle of a batch")
def largest(log):
    topic = log.topic()
    batch = encode_batch([Record(0, TIME_MS + each, None, b"v") for each in (1, 9, 3)])
    log.produce(topic, bytes(batch))
    log.produce(topic, batch_of(b"later, but older", timestamp_ms=TIME_MS + 2))
    return log.list_offset(topic, -3)


@case(
    LIST,
    "the largest timestamp when no record has one",
    differs="Headrace answers that there is none (-1), Kafka with the first record and timestamp -1",
)
def no_times(log):
    topic = log.topic()
    log.produce(topic, batch_of(b"v", timestamp_ms=-1))
    return log.list_offset(topic, -3)


@case(LIST, "an unknown special number")
def no_such_number(log):
    topic = timed(log)
    return [
        log.list_offset(topic, number, version=version)
        for number, version in ((-6, 11), (-7, 11), (-100, 11))
    ]


@case(LIST, "special numbers of later versions are rejected in earlier ones")
def too_new(log):
    topic = timed(log)
    return [
        log.list_offset(topic, number, version=version)
        for number, version in ((-3, 6), (-4, 7), (-5, 8), (-6, 10))
    ]


@case(LIST, "unknown topic and partition; a future leader epoch")
def unknown(log):
    topic = log.topic()
    return [
        log.list_offset(log.fresh("missing"), -1),
        log.list_offset(topic, -1, partition=9),
        log.list_offset(topic, -1, current_leader_epoch=3),
        log.list_offset(topic, -1, current_leader_epoch=0),
    ]


@case(LIST, "a partition that appears twice is INVALID_REQUEST")
def twice(log):
    topic = log.topic()
    part = {"partition_index": 0, "timestamp": -1}
    fields = {"replica_id": -1, "topics": topics_of(topic, part, part)}
    answer = log.ask(Api.LIST_OFFSETS, 7, fields).topics[0]
    return [[code(each.error_code), each.offset] for each in answer.partitions]


def delete(log, topic, offset, partition=0):
    fields = {"topics": topics_of(topic, {"partition_index": partition, "offset": offset}), "timeout": 5000}
    (found,) = log.ask(Api.DELETE_RECORDS, 2, fields).topics[0].partitions
    return [code(found.error_code), found.low_watermark]


@case(DELETE, "up to an offset, up to the end (-1), and what was already deleted")
def bounds(log):
    topic = log.topic()
    log.fill(topic, b"a", b"b", b"c", b"d")
    return [[delete(log, topic, offset), log.list_offset(topic, -2)] for offset in (2, 1, 0, -1, 4)]


@case(DELETE, "an offset behind the end or below -1 is OFFSET_OUT_OF_RANGE")
def out_of_bounds(log):
    topic = log.topic()
    log.fill(topic, b"a", b"b")
    return [delete(log, topic, 3), delete(log, topic, -2), log.list_offset(topic, -2)]


@case(DELETE, "unknown topic and partition")
def delete_unknown(log):
    return [delete(log, log.fresh("missing"), 0), delete(log, log.topic(), 0, partition=4)]


@case(DELETE, "on a topic that is only compacted is POLICY_VIOLATION; with compact,delete it works")
def delete_compacted(log):
    found = []
    for policy in ("compact", "compact,delete"):
        topic = log.topic(cleanup_policy=policy)
        log.produce(topic, batch_of(b"v", key=b"k"))
        found.append(delete(log, topic, 1))
    return found


@case(DELETE, "offsets continue where they were")
def goes_on(log):
    topic = log.topic()
    log.fill(topic, b"a", b"b")
    delete(log, topic, -1)
    return [log.placed(topic, batch_of(b"c")), log.values(topic, 2)]


def epoch_end(log, topic, leader_epoch, current=-1, partition=0):
    part = {"partition": partition, "current_leader_epoch": current, "leader_epoch": leader_epoch}
    fields = {"replica_id": -1, "topics": topics_of(topic, part, name="topic")}
    (found,) = log.ask(Api.OFFSET_FOR_LEADER_EPOCH, 4, fields).topics[0].partitions
    return [code(found.error_code), found.leader_epoch, found.end_offset]


@case(EPOCHS, "the current epoch ends at the log end; a later one is unknown")
def epochs(log):
    topic = log.topic()
    log.fill(topic, b"a", b"b")
    return [epoch_end(log, topic, epoch) for epoch in (0, 1, -1)]


@case(EPOCHS, "a client with a future epoch gets an error")
def epoch_believed(log):
    topic = log.topic()
    log.fill(topic, b"a")
    return [epoch_end(log, topic, 0, current=epoch) for epoch in (0, 2)]


@case(EPOCHS, "of an empty partition")
def epoch_empty(log):
    return epoch_end(log, log.topic(), 0)


@case(EPOCHS, "unknown topic and partition")
def epoch_unknown(log):
    return [epoch_end(log, log.fresh("missing"), 0), epoch_end(log, log.topic(), 0, partition=6)]
