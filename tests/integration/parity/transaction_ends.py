"""Cases of transactions that end otherwise than planned: too early, too late, twice, by time."""

import threading

from headrace.wire import Api
from parity.case import case
from parity.producer import Producer, reading
from parity.stage import code
from parity.transactions import INIT, LIFE

LATE_COMMIT = (
    "Headrace answers PRODUCER_FENCED, as Kafka does after 4.3 (KAFKA-20785): the transaction is aborted, and"
    " clients know what to do about it"
)

TOO_LONG_MS = 8_000  # and long enough for whatever is done in time


def wait_for_abort(log, producer):
    """Kafka looks every ten seconds for transactions that took too long."""
    fields = {"transactional_ids": [producer.name]}
    for _ in range(3_000):
        (found,) = log.ask(Api.DESCRIBE_TRANSACTIONS, 0, fields).transaction_states
        if found.transaction_state == "CompleteAbort":
            return
        threading.Event().wait(0.02)
    raise AssertionError(f"still {found.transaction_state}")


@case(INIT, "continuing in the middle of a transaction aborts it; repeated, the response is the same")
def goes_on_in_the_middle(log):
    topic, producer = log.topic(), Producer(log, bumps=True)
    producer.send(topic)
    before = {"producer_id": producer.id, "producer_epoch": producer.epoch}
    answers = [log.settled(lambda: producer.init(**before)) for _ in range(2)]
    bumped = [each.producer_epoch - producer.epoch for each in answers]
    producer.id, producer.epoch = answers[1].producer_id, answers[1].producer_epoch
    producer.sequences.clear()
    done = [producer.send(topic), producer.end()]
    return [[code(each.error_code) for each in answers], bumped, done, reading(log, topic, producer, 4)]


@case(
    LIFE,
    "a commit that comes before its records, in the second version",
    differs="Headrace answers CONCURRENT_TRANSACTIONS once, Kafka only while the last transaction is being"
    " ended: a race in its Java producer (4.3) lets an end overtake the records, and INVALID_TXN_STATE is"
    " fatal for such a producer",
)
def early_commit(log):
    topic, producer = log.topic(), Producer(log, bumps=True)
    early = log.ask(Api.END_TXN, 5, {**producer.claim(), "committed": True})
    return [code(early.error_code), producer.send(topic), producer.end(), reading(log, topic, producer, 2)]


@case(LIFE, "a batch of a transaction that has ended is INVALID_PRODUCER_EPOCH, in the second version")
def late_batch(log):
    topic, producer = log.topic(), Producer(log, bumps=True)
    producer.send(topic)
    stale = {"producer_epoch": producer.epoch}
    ended = producer.end()
    return [ended, producer.send(topic, sequence=1, **stale), producer.send(topic, sequence=0, **stale)]


@case(LIFE, "aborting a committed transaction is INVALID_TXN_STATE, in the second version too")
def contrary(log):
    topic, producer = log.topic(), Producer(log, bumps=True)
    producer.send(topic)
    stale = producer.claim()
    return [producer.end(True), producer.end(False, **stale), producer.end(True, **stale)]


@case(LIFE, "committing an aborted transaction, in the second version", differs=LATE_COMMIT)
def contrary_commit(log):
    topic, producer = log.topic(), Producer(log, bumps=True)
    producer.send(topic)
    stale = producer.claim()
    return [producer.end(False), producer.end(True, **stale)]


@case(LIFE, "an end by the second version does not repeat one by the first")
def mixed(log):
    topic, producer = log.topic(), Producer(log)
    producer.add(topic)
    producer.send(topic)
    found = [producer.end(), producer.end()]
    producer.bumps = True
    return [*found, producer.end()]


@case(
    LIFE,
    "a transaction that timed out is aborted; a producer that aborts it too continues, in the second version",
)
def too_long(log):
    topic, producer = log.topic(), Producer(log, bumps=True, timeout_ms=TOO_LONG_MS)
    producer.send(topic)
    wait_for_abort(log, producer)
    before = producer.epoch
    late = [producer.send(topic), producer.end(False), producer.epoch - before]
    return [late, producer.send(topic), producer.end(), reading(log, topic, producer, 4)]


@case(LIFE, "committing a transaction that timed out, in the second version", differs=LATE_COMMIT)
def committed_too_late(log):
    topic, producer = log.topic(), Producer(log, bumps=True, timeout_ms=100)
    producer.send(topic)
    wait_for_abort(log, producer)
    return producer.end(True)


@case(
    LIFE, "a producer that timed out is fenced in the first version, and continues with its previous identity"
)
def too_long_before(log):
    topic, producer = log.topic(), Producer(log, timeout_ms=TOO_LONG_MS)
    producer.add(topic)
    producer.send(topic)
    wait_for_abort(log, producer)
    late = [producer.send(topic), producer.add(topic), producer.end(True), producer.end(False)]
    answer = log.settled(lambda: producer.init(producer_id=producer.id, producer_epoch=producer.epoch))
    return [late, code(answer.error_code), answer.producer_epoch - producer.epoch]
