"""Event sourcing: commands in, events out, and state that follows from events alone.

An entity type is a pure pair of functions, `decide` and `evolve` (`entity_type.py`). Commands
are records of a topic; `EntityServer` is a member of a group that shares their partitions, and
carries each command out once: events, answer and progress are one transaction (`owner.py`).
`Entities` is how an application's code sends commands and reads histories.

Promises: commands for one entity are carried out one after the other, in the order of the log;
an answered command's events are on disk; one command id is carried out once. Commands do
not involve Spark. `projections` are views that the serving processes keep. May import `views`, `client`,
`personal`, `records` and below.
"""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.sourcing.clearing import clear_records as clear_records
    from headrace.sourcing.client import CommandSender as CommandSender
    from headrace.sourcing.client import new_command_id as new_command_id
    from headrace.sourcing.entities import Entities as Entities
    from headrace.sourcing.entities import Entity as Entity
    from headrace.sourcing.entities import EntityKind as EntityKind
    from headrace.sourcing.entity_type import EntityType as EntityType
    from headrace.sourcing.entity_type import Rejected as Rejected
    from headrace.sourcing.entity_type import make_entity_type as make_entity_type
    from headrace.sourcing.history import History as History
    from headrace.sourcing.history import PastState as PastState
    from headrace.sourcing.history import list_entities as list_entities
    from headrace.sourcing.history import read_events as read_events
    from headrace.sourcing.history import state_changes as state_changes
    from headrace.sourcing.history import steps_of as steps_of
    from headrace.sourcing.reactions import Happened as Happened
    from headrace.sourcing.reactions import Reaction as Reaction
    from headrace.sourcing.reactions import Send as Send
    from headrace.sourcing.reactions import reaction_group as reaction_group
    from headrace.sourcing.records import Answer as Answer
    from headrace.sourcing.records import Command as Command
    from headrace.sourcing.records import Event as Event
    from headrace.sourcing.records import Topics as Topics
    from headrace.sourcing.records import format_time as format_time
    from headrace.sourcing.sealing import DescribedKind as DescribedKind
    from headrace.sourcing.sealing import FindKeys as FindKeys
    from headrace.sourcing.sealing import Sealing as Sealing
    from headrace.sourcing.sealing import needs_keys as needs_keys
    from headrace.sourcing.server import EntityServer as EntityServer
    from headrace.sourcing.server import entity_group as entity_group
    from headrace.sourcing.topics import create_entity_topics as create_entity_topics
    from headrace.sourcing.values import to_json as to_json

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "clearing": "clear_records",
        "client": "CommandSender new_command_id",
        "entities": "Entities Entity EntityKind",
        "entity_type": "EntityType Rejected make_entity_type",
        "history": "History PastState list_entities read_events state_changes steps_of",
        "reactions": "Happened Reaction Send reaction_group",
        "records": "Answer Command Event Topics format_time",
        "sealing": "DescribedKind FindKeys Sealing needs_keys",
        "server": "EntityServer entity_group",
        "topics": "create_entity_topics",
        "values": "to_json",
    },
)
