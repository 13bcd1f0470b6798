"""Cases of what readers and administrators see of transactions."""

from headrace.wire import Api
from parity.case import case
from parity.fetch import seen
from parity.producer import Producer, reading
from parity.stage import code, wait_until

READ, ADMIN = "reading transactions", "administering transactions"


@case(READ, "read_committed readers stop at the last stable offset and learn what was aborted")
def isolation(log):
    topic, first, second = log.topic(), Producer(log), Producer(log)
    log.fill(topic, b"plain")
    for producer, value in ((first, b"void"), (second, b"kept")):
        producer.add(topic)
        producer.send(topic, value)
    found = [seen(log.fetch(topic, 0, isolation_level=level)) for level in (0, 1)]
    latest = [log.list_offset(topic, -1, isolation_level=level) for level in (0, 1)]
    first.end(False)
    wait_until(lambda: log.list_offset(topic, -1), lambda end: end[1] == 4)  # its marker, before the other's
    second.end(True)
    return [found, latest, *reading(log, topic, first, 5)]


@case(READ, "aborted transactions are listed for the range that is read only")
def aborted(log):
    topic, producer = log.topic(), Producer(log)
    for value in (b"a", b"b", b"c"):
        producer.add(topic)
        producer.send(topic, value)
        producer.end(value == b"b")
    reading(log, topic, producer, 6)
    found = []
    for offset in range(7):
        answer = log.fetch(topic, offset, isolation_level=1)
        found.append([each.first_offset for each in answer.aborted_transactions])
    uncommitted = log.fetch(topic, 0).aborted_transactions
    return [found, uncommitted]


@case(READ, "a new instance of a producer aborts what the previous one left open")
def left_open(log):
    topic, old = log.topic(), Producer(log)
    old.add(topic)
    old.send(topic, b"void")
    new = Producer(log, old.name)
    new.add(topic)
    new.send(topic, b"kept")
    new.end()
    return reading(log, topic, old, 4)


def describe(log, *names):
    answer = log.ask(Api.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": list(names)})
    return [
        [code(each.error_code), each.transaction_state, each.transaction_timeout, len(each.topics)]
        for each in answer.transaction_states
    ]


@case(ADMIN, "described in each state; an unknown one is TRANSACTIONAL_ID_NOT_FOUND")
def described(log):
    topic, producer = log.topic(), Producer(log, timeout_ms=12_345)
    found = [describe(log, log.fresh("nobody")), describe(log, producer.name)]
    producer.add(topic)
    found.append(describe(log, producer.name))
    for commit in (True, False):
        producer.add(topic)
        producer.end(commit)
        # Both brokers answer once it is decided, and carry it out behind that.
        found.append(
            wait_until(
                lambda: describe(log, producer.name), lambda answer: answer[0][1].startswith("Complete")
            )
        )
    return found


@case(ADMIN, "listed by state; unknown states are returned")
def listed(log):
    topic, open_one, empty = log.topic(), Producer(log), Producer(log)
    open_one.add(topic)

    def ask(**filters):
        answer = log.ask(Api.LIST_TRANSACTIONS, 1, filters)
        found = {each.transactional_id: each.transaction_state for each in answer.transaction_states}
        states = [found.get(each.name) for each in (open_one, empty)]
        return [code(answer.error_code), list(answer.unknown_state_filters), states]

    return [
        ask(),
        ask(state_filters=["Ongoing"]),
        ask(state_filters=["Empty", "Nonsense"]),
        ask(producer_id_filters=[empty.id]),
    ]


@case(
    ADMIN,
    "listed by duration: one that has not begun",
    differs="a transaction that has not begun has no duration; Kafka counts from 1970 and lists it",
)
def listed_by_duration(log):
    producer = Producer(log)
    answer = log.ask(Api.LIST_TRANSACTIONS, 1, {"duration_filter": 3_600_000})
    return producer.name in {each.transactional_id for each in answer.transaction_states}


@case(ADMIN, "listed by a pattern of their ids; an invalid one is INVALID_REGULAR_EXPRESSION")
def listed_by_pattern(log):
    producer = Producer(log, log.fresh("the-only-one"))

    def ask(pattern):
        answer = log.ask(Api.LIST_TRANSACTIONS, 2, {"transactional_id_pattern": pattern})
        return [
            code(answer.error_code),
            [each.transactional_id for each in answer.transaction_states] == [producer.name],
        ]

    return [ask(producer.name), ask(producer.name[:-1] + "."), ask("[")]


@case(ADMIN, "an open transaction is visible at its partition: where it began, and with which epoch")
def at_the_partition(log):
    topic, producer = log.topic(), Producer(log)
    log.fill(topic, b"plain")
    producer.add(topic)
    producer.send(topic)

    def ask():
        (answer,) = log.ask(
            Api.DESCRIBE_PRODUCERS, 0, {"topics": [{"name": topic, "partition_indexes": [0]}]}
        ).topics
        return [
            [
                each.producer_id == producer.id,
                each.producer_epoch,
                each.last_sequence,
                each.current_txn_start_offset,
            ]
            for each in answer.partitions[0].active_producers
        ]

    before = ask()
    producer.end()
    return [before, wait_until(ask, lambda after: after[0][3] == -1)]
