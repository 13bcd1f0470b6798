"""Cases of idempotent producers: sequences of batches, and what each of them is answered."""

from headrace.wire import Api
from parity.case import case
from parity.stage import batch_of, code

AREA = "idempotent producers"
LAST = 2**31 - 1
V = (b"v",)


def sent(sequence, *values, producer=1, epoch=0, transactional=False):
    options = {"producer_id": producer, "producer_epoch": epoch, "transactional": transactional}
    return batch_of(*values, base_sequence=sequence, **options)


SEQUENCES = {
    "batches in order are accepted": [sent(0), sent(1), sent(2, *V * 3), sent(5)],
    "the last five batches again are duplicates, with their offsets; older ones are out of order": [
        sent(number) for number in [*range(7), *reversed(range(7))]
    ],
    "a gap is OUT_OF_ORDER_SEQUENCE_NUMBER": [sent(0), sent(2), sent(1)],
    "an unknown producer may begin anywhere": [sent(44), sent(45), sent(44)],
    "parts of a batch are not duplicates": [
        sent(0, *V * 3), sent(0, *V * 2), sent(1, *V * 2), sent(2, *V * 2)
    ],
    "a new epoch begins at 0, and the old one is INVALID_PRODUCER_EPOCH": [
        sent(0), sent(0, epoch=1), sent(1), sent(0), sent(1, epoch=1)
    ],
    "a new epoch that does not begin at 0 is out of order": [sent(0), sent(1, epoch=1), sent(0, epoch=1)],
    "epochs may be skipped": [sent(0), sent(0, epoch=5), sent(1, epoch=5)],
    "the first epoch seen may be a late one": [sent(7, epoch=9), sent(8, epoch=9), sent(0, epoch=8)],
    "sequence numbers wrap within a batch": [
        sent(LAST - 1, *V * 4), sent(2), sent(LAST - 1, *V * 4), sent(3)
    ],
    "sequence numbers wrap between batches": [sent(LAST), sent(0), sent(LAST), sent(1)],
    "the number after the last is 0": [sent(LAST), sent(1)],
    "a producer id without a sequence number is INVALID_RECORD": [sent(-1)],
    "a transactional batch without a transactional id is rejected": [sent(0, transactional=True)],
    "producers do not disturb each other": [sent(0), sent(0, producer=2), sent(1), sent(1, producer=2)],
}  # fmt: skip


def _sequence(batches):
    def run(log):
        topic = log.topic()
        return [log.placed(topic, batch) for batch in batches]

    return run


for _title, _batches in SEQUENCES.items():
    case(AREA, _title)(_sequence(_batches))


@case(AREA, "a producer id without a transactional id comes with epoch 0, and another one each time")
def ids(log):
    answers = [log.settled(lambda: log.ask(Api.INIT_PRODUCER_ID, 4, {})) for _ in range(2)]
    return [
        [[code(answer.error_code), answer.producer_epoch] for answer in answers],
        answers[0].producer_id != answers[1].producer_id,
    ]


@case(AREA, "the producers of a partition are listed with epoch and last sequence number")
def described(log):
    topic = log.topic()
    for batch in (sent(0, *V * 3), sent(3), sent(9, producer=2, epoch=4)):
        log.produce(topic, batch)
    fields = {"topics": [{"name": topic, "partition_indexes": [0, 5]}]}
    (answer,) = log.ask(Api.DESCRIBE_PRODUCERS, 0, fields).topics
    return sorted(
        [
            part.partition_index,
            code(part.error_code),
            sorted(
                [each.producer_id, each.producer_epoch, each.last_sequence, each.current_txn_start_offset]
                for each in part.active_producers
            ),
        ]
        for part in answer.partitions
    )
