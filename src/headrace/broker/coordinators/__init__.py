"""Coordinators of groups, transactions and queues: pure decisions made durable, then carried out."""
