"""Connections of clients: bytes in, answers out in order, and the fast path of small batches."""
