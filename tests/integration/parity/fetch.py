"""Cases of fetching: bounds, sizes, waiting, isolation, names and ids, sessions."""

import threading
import time
import uuid

from headrace.wire import Api
from parity.case import case
from parity.stage import batch_of, code, records_in, whole_batches

AREA = "fetch"
WITHOUT_END_MS = 1_800_000  # longer than any test may take: whoever waits for its end hangs


def seen(answer):
    """What a reader is told of a partition."""
    return [
        code(answer.error_code),
        answer.high_watermark,
        answer.last_stable_offset,
        answer.log_start_offset,
        records_in(answer.records),
    ]


@case(AREA, "from the start, from the middle, and at the end, where there is nothing")
def places(log):
    topic = log.topic()
    log.fill(topic, b"a", b"b", b"c")
    return [seen(log.fetch(topic, offset)) for offset in (0, 1, 3)]


@case(AREA, "an offset behind the end or before the start is OFFSET_OUT_OF_RANGE")
def out_of_range(log):
    topic = log.topic()
    log.fill(topic, b"a", b"b", b"c")
    fields = {
        "topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 1}]}],
        "timeout": 5000,
    }
    log.ask(Api.DELETE_RECORDS, 2, fields)
    return [seen(log.fetch(topic, offset)) for offset in (4, 100, 0, -1, 1)]


@case(AREA, "an offset in the middle of a batch returns the whole batch")
def midst(log):
    topic = log.topic()
    log.produce(topic, batch_of(b"a", b"b", b"c"))
    return seen(log.fetch(topic, 1))


@case(AREA, "unknown topics and partitions are UNKNOWN_TOPIC_OR_PARTITION")
def unknown(log):
    topic = log.topic()
    return [seen(log.fetch(log.fresh("missing"), 0)), seen(log.fetch(topic, 0, partition=3))]


@case(AREA, "by id since version 13; an unknown id is UNKNOWN_TOPIC_ID")
def by_id(log):
    topic = log.topic()
    log.fill(topic, b"a")
    found = []
    for topic_id in (log.topic_id(topic), uuid.UUID(int=78)):
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
        fields = {"max_bytes": 1000, "topics": [{"topic_id": topic_id, "partitions": [part]}]}
        answer = log.ask(Api.FETCH, 16, fields)
        found.append([code(answer.error_code), *seen(answer.responses[0].partitions[0])])
    return found


@case(AREA, "the first batch comes whole, however small the limits")
def first_batch(log):
    topic = log.topic()
    log.fill(topic, b"x" * 500, b"y")
    return [
        [len(value) for _, value in log.values(topic, partition_max_bytes=1)],
        [len(value) for _, value in log.values(topic, max_bytes=1)],
        [len(value) for _, value in log.values(topic, max_bytes=0, partition_max_bytes=0)],
    ]


@case(AREA, "a partition's limit is kept from the second batch on")
def partition_limit(log):
    topic = log.topic()
    log.fill(topic, *[b"x" * 100] * 5)
    size = len(batch_of(b"x" * 100))
    limits = (size, 2 * size - 1, 2 * size, 3 * size + 1, 10 * size)
    return [len(log.values(topic, partition_max_bytes=limit)) for limit in limits]


@case(AREA, "the limit of a whole response is kept across partitions")
def answer_limit(log):
    topic = log.topic(partitions=3)
    for index in range(3):
        log.fill(topic, b"x" * 100, b"x" * 100, partition=index)
    size = len(batch_of(b"x" * 100))
    found = []
    for limit in (1, size, 2 * size, 3 * size, 4 * size, 100 * size):
        parts = [
            {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for index in range(3)
        ]
        fields = {"max_bytes": limit, "topics": [{"topic": topic, "partitions": parts}]}
        answer = log.ask(Api.FETCH, 11, fields).responses[0]
        found.append([len(list(whole_batches(bytes(part.records or b"")))) for part in answer.partitions])
    return found


@case(AREA, "if min_bytes is not reached, what is there is returned when max_wait is over")
def waits(log):
    topic = log.topic()
    log.fill(topic, b"a")
    began = time.monotonic()
    values = log.values(topic, min_bytes=1 << 20, wait_ms=300)
    return [values, time.monotonic() - began >= 0.29]


@case(AREA, "a waiting fetch is answered as soon as min_bytes are available")
def wakes(log):
    topic, writer = log.topic(), log.connect()
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch_of(b"now")}]}]
    fields = {"acks": -1, "timeout": 1000, "topic_data": data}
    timer = threading.Timer(0.2, writer.request, (Api.PRODUCE, 9, fields))
    timer.start()
    began = time.monotonic()
    values = log.values(topic, wait_ms=WITHOUT_END_MS)
    timer.join()
    return [values, time.monotonic() - began < WITHOUT_END_MS / 1000]


@case(AREA, "an error is returned at once, without waiting")
def errors_at_once(log):
    began = time.monotonic()
    found = code(log.fetch(log.topic(), 50, wait_ms=WITHOUT_END_MS).error_code)
    return [found, time.monotonic() - began < WITHOUT_END_MS / 1000]


@case(AREA, "a future leader epoch is UNKNOWN_LEADER_EPOCH")
def leader_epoch(log):
    topic = log.topic()
    log.fill(topic, b"a")
    return [seen(log.fetch(topic, 0, current_leader_epoch=epoch)) for epoch in (0, 1, 50)]


@case(AREA, "a last fetched epoch in the future is OFFSET_OUT_OF_RANGE")
def diverging(log):
    topic = log.topic()
    log.fill(topic, b"a", b"b")
    found = []
    for offset, last_epoch in ((1, 0), (2, 0), (1, 5)):
        part = {
            "partition": 0,
            "fetch_offset": offset,
            "last_fetched_epoch": last_epoch,
            "partition_max_bytes": 1000,
        }
        fields = {"max_bytes": 1000, "topics": [{"topic": topic, "partitions": [part]}]}
        (answer,) = log.ask(Api.FETCH, 12, fields).responses[0].partitions
        diverged = answer.diverging_epoch
        found.append([code(answer.error_code), [diverged.epoch, diverged.end_offset] if diverged else None])
    return found


@case(AREA, "an unknown fetch session is FETCH_SESSION_ID_NOT_FOUND")
def unknown_session(log):
    answer = log.ask(Api.FETCH, 12, {"session_id": 12345, "session_epoch": 1})
    return [code(answer.error_code), answer.session_id, len(answer.responses)]


@case(
    AREA,
    "a fetch session is created on request",
    differs="there are no fetch sessions: each fetch names its partitions, a few bytes on one machine."
    " Clients understand session id 0 as no session",
)
def session(log):
    topic = log.topic()
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    fields = {"session_epoch": 0, "max_bytes": 1000, "topics": [{"topic": topic, "partitions": [part]}]}
    answer = log.ask(Api.FETCH, 12, fields)
    return [code(answer.error_code), "a session" if answer.session_id else "no session"]


@case(AREA, "an empty fetch gets an empty response")
def odd_requests(log):
    answer = log.ask(Api.FETCH, 12, {"max_wait": 100, "min_bytes": 1})
    return [code(answer.error_code), len(answer.responses)]


@case(AREA, "every codec is returned as it was sent")
def codecs(log):
    topic = log.topic()
    for codec in range(5):
        log.produce(topic, batch_of(b"value %d" % codec * 20, codec=codec))
    data = bytes(log.fetch(topic, 0).records)
    return [[header.codec, header.base_offset] for _, header in whole_batches(data)]
