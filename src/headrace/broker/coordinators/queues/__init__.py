"""The coordinator of queues, which Kafka calls share groups: leases, acknowledgements, dead letters."""
