"""The table that says what each API requires of its caller, on which resource.

Per resource as Kafka answers: what is not allowed gets its authorisation error
and the rest is served; what was not named is left out of lists; whether a topic
exists is not disclosed to a user who may not see it. An API that is missing here is
refused to everybody while access is enforced (and a test fails).
"""

from headrace.broker.access.guards.cluster import CLUSTER_GUARDS
from headrace.broker.access.guards.groups import GROUP_GUARDS
from headrace.broker.access.guards.ruling import Guard, GuardedRequest, Ruling
from headrace.broker.access.guards.topics import TOPIC_GUARDS

__all__ = ["GUARDS", "Guard", "GuardedRequest", "Ruling"]

GUARDS: dict[int, Guard] = {**TOPIC_GUARDS, **GROUP_GUARDS, **CLUSTER_GUARDS}
