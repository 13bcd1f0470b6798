"""Producers of a partition: epochs, sequence numbers, open and aborted transactions."""

from headrace.storage.producers.aborted_transactions import AbortedTransaction
from headrace.storage.producers.batch_headers import (
    PRODUCER_HEADER,
    ProducerHeader,
    ProducerHeaders,
    RawProducerHeader,
)
from headrace.storage.producers.snapshots import ProducerSnapshots, SyncedProducers
from headrace.storage.producers.table import (
    REMEMBERED_BATCHES,
    AppendedMarker,
    OpenTransaction,
    ProducerBatch,
    ProducerState,
    ProducerTable,
    last_sequence,
)

__all__ = [
    "PRODUCER_HEADER",
    "REMEMBERED_BATCHES",
    "AbortedTransaction",
    "AppendedMarker",
    "OpenTransaction",
    "ProducerBatch",
    "ProducerHeader",
    "ProducerHeaders",
    "ProducerSnapshots",
    "ProducerState",
    "ProducerTable",
    "RawProducerHeader",
    "SyncedProducers",
    "last_sequence",
]
