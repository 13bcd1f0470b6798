"""The coordinator of queues, which Kafka calls share groups: leases, acknowledgements, dead letters."""

from headrace.broker.coordinators.queues.coordinator import QueueCoordinator
from headrace.broker.coordinators.queues.dead_letters import DeadLetters
from headrace.broker.coordinators.queues.fetching import Answers, ShareFetch, check_may_read
from headrace.broker.coordinators.queues.store import QueueStore

__all__ = [
    "Answers",
    "DeadLetters",
    "QueueCoordinator",
    "QueueStore",
    "ShareFetch",
    "check_may_read",
]
