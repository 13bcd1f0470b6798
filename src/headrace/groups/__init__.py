"""Consumer groups as pure state machines.

A decision takes a group, a request and the time, and returns the group from then
on, the events to persist and the answers to send after that (`Decision`). A replay of
the events gives the group back. Time, member ids and topics come in as arguments;
nothing here does I/O. Two protocols: `classic` (the members' leader assigns) and
`consumer` (the broker assigns, KIP-848). `offsets` decides on committed offsets,
`journal` writes events as records. Imports only the ground floor.
"""

from headrace.groups import classic, consumer, journal, offsets
from headrace.groups.codes import Code
from headrace.groups.decision import Answer, Decision
from headrace.groups.events import GroupEvent, TopicInfo
from headrace.groups.settings import GroupSettings

__all__ = [
    "Answer",
    "Code",
    "Decision",
    "GroupEvent",
    "GroupSettings",
    "TopicInfo",
    "classic",
    "consumer",
    "journal",
    "offsets",
]
