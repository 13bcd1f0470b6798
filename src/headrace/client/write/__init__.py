"""Writing to topics in transactions, each numbered batch exactly once."""

from headrace.client.write.batch_producer import BatchProducer, TransactionExpired
from headrace.client.write.fencing import fence
from headrace.client.write.oversized import fits, fitting_changes, row_letter
from headrace.client.write.record_block import RecordBlock, one_record_at_a_time
from headrace.client.write.record_sink import RecordSink, records_of
from headrace.client.write.transactional_producer import NextOffsets, TransactionalProducer
from headrace.client.write.transactions import (
    BATCHES_TOPIC,
    OutputRecord,
    RecordTooLarge,
    TransactionalWriter,
    smaller_limit,
    transactional_id,
)

__all__ = [
    "BATCHES_TOPIC",
    "BatchProducer",
    "NextOffsets",
    "OutputRecord",
    "RecordBlock",
    "RecordSink",
    "RecordTooLarge",
    "TransactionExpired",
    "TransactionalProducer",
    "TransactionalWriter",
    "fence",
    "fits",
    "fitting_changes",
    "one_record_at_a_time",
    "records_of",
    "row_letter",
    "smaller_limit",
    "transactional_id",
]
