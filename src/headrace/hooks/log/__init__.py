"""The topics of hooks: followed records, their own state, marks and dead letters."""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.hooks.log.dead_letters import addressee as addressee
    from headrace.hooks.log.dead_letters import dead_letter as dead_letter
    from headrace.hooks.log.dead_letters import earlier_id as earlier_id
    from headrace.hooks.log.dead_letters import gap_notice as gap_notice
    from headrace.hooks.log.records import HookRecord as HookRecord
    from headrace.hooks.log.records import message_id as message_id
    from headrace.hooks.log.records import source_of as source_of
    from headrace.hooks.log.state import HookState as HookState
    from headrace.hooks.log.state import HookSwitch as HookSwitch
    from headrace.hooks.log.state import LastAttempt as LastAttempt
    from headrace.hooks.log.state import StateRecords as StateRecords
    from headrace.hooks.log.state import apply_record as apply_record
    from headrace.hooks.log.state import switch_key as switch_key
    from headrace.hooks.log.state_topic import list_hooks as list_hooks
    from headrace.hooks.log.state_topic import read_state as read_state
    from headrace.hooks.log.state_writer import StateWriter as StateWriter
    from headrace.hooks.log.topic_reader import HookReader as HookReader
    from headrace.hooks.log.topic_reader import Item as Item
    from headrace.hooks.log.topic_reader import PartitionEnd as PartitionEnd
    from headrace.hooks.log.topic_reader import PositionLost as PositionLost
    from headrace.hooks.log.topics import FollowedTopic as FollowedTopic
    from headrace.hooks.log.topics import TopicLookup as TopicLookup

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "dead_letters": "addressee dead_letter earlier_id gap_notice",
        "records": "HookRecord message_id source_of",
        "state": "HookState HookSwitch LastAttempt StateRecords apply_record switch_key",
        "state_topic": "list_hooks read_state",
        "state_writer": "StateWriter",
        "topic_reader": "HookReader Item PartitionEnd PositionLost",
        "topics": "FollowedTopic TopicLookup",
    },
)
