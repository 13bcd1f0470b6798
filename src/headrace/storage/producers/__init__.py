"""Producers of a partition: epochs, sequence numbers, open and aborted transactions."""

from headrace.storage.producers.aborted_transactions import AbortedTransaction

__all__ = ["AbortedTransaction"]
