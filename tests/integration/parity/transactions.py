"""Cases of transactions, in plain requests of both versions of the protocol."""

from headrace.wire import Api
from parity.case import case
from parity.members import committed, joined
from parity.producer import Producer, reading
from parity.stage import batch_of, code, wait_until

INIT, LIFE, OFFSETS = "transactional producers", "transactions", "offsets in transactions"


def is_stable(answer):
    """Whether no transaction is open any more that has committed the offset."""
    return answer[1][0][0] == "NONE"


@case(INIT, "epoch 0 at first, and one more for each new instance of the same id")
def epochs(log):
    first = Producer(log)
    second, third = Producer(log, first.name), Producer(log, first.name)
    return [[each.epoch for each in (first, second, third)], first.id == second.id == third.id]


@case(INIT, "time-outs of 0 or over 15 minutes are INVALID_TRANSACTION_TIMEOUT")
def timeouts(log):
    name = log.fresh("txn")

    def ask(timeout_ms):
        fields = {"transactional_id": name, "transaction_timeout": timeout_ms}
        return code(log.settled(lambda: log.ask(Api.INIT_PRODUCER_ID, 5, fields)).error_code)

    return [ask(each) for each in (0, -1, 900_001, 900_000, 1)]


@case(INIT, "an empty transactional id is INVALID_REQUEST")
def empty_id(log):
    fields = {"transactional_id": "", "transaction_timeout": 1000}
    return code(log.ask(Api.INIT_PRODUCER_ID, 5, fields).error_code)


@case(INIT, "continuing with a previous identity: an old epoch is fenced, another producer's id is rejected")
def goes_on(log):
    producer = Producer(log)
    new = Producer(log, producer.name)
    stale = producer.init(producer_id=producer.id, producer_epoch=producer.epoch)
    other = producer.init(producer_id=producer.id + 999, producer_epoch=0)
    half = producer.init(producer_id=producer.id, producer_epoch=-1)
    good = log.settled(lambda: new.init(producer_id=new.id, producer_epoch=new.epoch))
    return [
        *[code(each.error_code) for each in (stale, other, half, good)],
        good.producer_epoch - new.epoch,
        good.producer_id == new.id,
    ]


@case(LIFE, "commit and abort: offsets, and a marker that takes one")
def offsets(log):
    topic, producer = log.topic(), Producer(log)
    found = []
    for commit in (True, False, True):
        found.append([producer.add(topic), producer.send(topic), producer.end(commit)])
    return [found, reading(log, topic, producer, 6)[0]]


@case(LIFE, "the second version: partitions are added by producing, and every end gives the next epoch")
def bumps(log):
    topic, producer = log.topic(), Producer(log, bumps=True)
    first = producer.epoch
    found = []
    for commit in (True, False, True):
        found.append([producer.send(topic), producer.end(commit), producer.epoch - first])
    return [found, reading(log, topic, producer, 6)[0]]


@case(LIFE, "without the epoch bump, sequence numbers continue across the end of a transaction")
def sequence(log):
    topic, producer = log.topic(), Producer(log)
    producer.add(topic)
    first = producer.send(topic)
    producer.end()
    producer.add(topic)
    return [first, producer.send(topic), producer.send(topic, sequence=5), producer.end()]


@case(LIFE, "an end with nothing to end is INVALID_TXN_STATE")
def nothing(log):
    first, second = Producer(log), Producer(log, bumps=True)
    return [first.end(True), first.end(False), second.end(True)]


@case(LIFE, "the second version lets a producer abort what it never began")
def abort_nothing(log):
    producer = Producer(log, bumps=True)
    before = producer.epoch
    return [producer.end(False), producer.epoch - before]


@case(LIFE, "a repeated end succeeds, the opposite end is INVALID_TXN_STATE")
def twice(log):
    topic, found = log.topic(), []
    for commit in (True, False):
        producer = Producer(log)
        producer.add(topic)
        producer.send(topic)
        found.append([producer.end(commit), producer.end(commit), producer.end(not commit)])
    return found


@case(LIFE, "a stale end of the second version cannot end the next transaction")
def stale_end(log):
    topic, producer = log.topic(), Producer(log, bumps=True)
    producer.send(topic)
    stale = producer.claim()
    producer.end(True)
    repeated = producer.end(True, **stale)
    producer.send(topic)
    late = producer.end(False, **stale)
    return [repeated, late, producer.end(True), reading(log, topic, producer, 4)]


@case(LIFE, "an older epoch is fenced everywhere, a later one too")
def fenced(log):
    topic, old = log.topic(), Producer(log)
    old.add(topic)
    old.send(topic)
    new = Producer(log, old.name)
    later = {"producer_epoch": new.epoch + 5}
    return [
        [old.add(topic), old.send(topic), old.end(), old.add_group("g"), old.commit("g", topic)],
        [new.add(topic, **later), new.end(**later), new.add_group("g", **later)],
        log.list_offset(topic, -1),
    ]


@case(LIFE, "another producer id is INVALID_PRODUCER_ID_MAPPING, as is an unknown transactional id")
def other_id(log):
    topic, producer = log.topic(), Producer(log)
    wrong, nobody = {"producer_id": producer.id + 999}, {"transactional_id": log.fresh("nobody")}
    return [
        [producer.add(topic, **wrong), producer.end(**wrong), producer.add_group("g", **wrong)],
        [producer.add(topic, **nobody), producer.end(**nobody), producer.add_group("g", **nobody)],
        [producer.send(topic, **wrong), producer.send(topic, **nobody)],
    ]


@case(LIFE, "an unknown topic fails the whole request: the others are OPERATION_NOT_ATTEMPTED")
def unknown_topic(log):
    topic, producer = log.topic(), Producer(log)
    return [producer.add(topic, "no-such-topic"), producer.send(topic)]


@case(
    LIFE,
    "a partition that was not added is TRANSACTION_ABORTABLE, and INVALID_TXN_STATE before Produce 11",
)
def not_added(log):
    topic, other, producer = log.topic(), log.topic(), Producer(log)
    producer.add(other)
    older = producer.send(topic, version=10)
    return [older, producer.send(topic), producer.send(other), producer.end()]


@case(LIFE, "a non-transactional batch cannot be sent within a transaction, nor the reverse")
def not_transactional(log):
    topic, producer = log.topic(), Producer(log)
    plain = batch_of(producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=0)
    before = log.placed(topic, plain)
    producer.add(topic)
    return [
        before,
        producer.send(topic, sequence=1),
        log.placed(topic, batch_of(producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=2)),
    ]


@case(
    OFFSETS,
    "take effect on commit; until then, requiring stable offsets is UNSTABLE_OFFSET_COMMIT",
)
def pending(log):
    topic, group, producer = log.topic(), log.fresh("group"), Producer(log)
    steps = [producer.add_group(group), producer.commit(group, topic, 7)]
    before = [committed(log, group, topic), committed(log, group, topic, require_stable=True)]
    steps.append(producer.end())
    after = wait_until(lambda: committed(log, group, topic, require_stable=True), is_stable)
    return [steps, before, after]


@case(OFFSETS, "of an aborted transaction are discarded")
def forgotten(log):
    topic, group, producer = log.topic(), log.fresh("group"), Producer(log, bumps=True)
    steps = [producer.commit(group, topic, 7), producer.end(False)]
    after = wait_until(lambda: committed(log, group, topic, require_stable=True), is_stable)
    return [steps, after]


@case(OFFSETS, "with a member's generation: a wrong one, a non-member's, the right one")
def generations(log):
    topic, member, producer = log.topic(), joined(log), Producer(log)
    producer.add_group(member.group)
    return [
        producer.commit(member.group, topic, generation_id=member.generation + 1, member_id=member.id),
        producer.commit(member.group, topic, generation_id=member.generation, member_id="stranger"),
        producer.commit(member.group, topic),
        producer.commit(member.group, topic, generation_id=member.generation, member_id=member.id),
        producer.end(),
    ]


@case(OFFSETS, "of a static member that was replaced are FENCED_INSTANCE_ID")
def static(log):
    topic, producer = log.topic(), Producer(log)
    first = joined(log, instance="one")
    joined(log, first.group, instance="one")
    producer.add_group(first.group)
    claim = {"generation_id": first.generation, "member_id": first.id, "group_instance_id": "one"}
    return producer.commit(first.group, topic, **claim)


@case(OFFSETS, "of an unknown topic or partition are UNKNOWN_TOPIC_OR_PARTITION")
def unknown_offsets(log):
    group, producer = log.fresh("group"), Producer(log)
    producer.add_group(group)
    return [producer.commit(group, "no-such-topic"), producer.commit(group, log.topic(), partition=5)]


@case(OFFSETS, "to a group that was not added, in the first version")
def group_not_added(log):
    topic, group, producer = log.topic(), log.fresh("group"), Producer(log)
    return [producer.commit(group, topic), producer.end(False)]
