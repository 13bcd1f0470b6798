"""The state topic of an application's hooks, read from the log alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING

from headrace.client import Connection
from headrace.client.topics import topic_names
from headrace.errors import RetriableError
from headrace.hooks.hook import Hook, hook_dead_topic, state_topic
from headrace.hooks.log.records import HookRecord
from headrace.hooks.log.state import HookState, StateRecords, apply_record
from headrace.hooks.log.topic_reader import HookReader, PartitionEnd
from headrace.hooks.log.topics import FollowedTopic, TopicLookup

__all__ = ["list_hooks", "read_state"]

_SUFFIX = state_topic("")


def read_state(connection: Connection, topic: str) -> tuple[StateRecords, int]:
    """Everything on an application's state topic, and the next offset; the topic must exist."""
    records = StateRecords()
    quick = {"fetch_wait_max_ms": 10}  # a fetch that finds nothing marks the end
    reader = HookReader(connection, topic, {0: OFFSET_BEGINNING}, group=f"{topic}.reader", properties=quick)
    try:
        while True:
            items = reader.read(connection.request_timeout_ms / 1000)
            if not items:
                raise RetriableError(f"topic {topic!r} cannot be read: no answer; try again")
            for item in items:
                if isinstance(item, HookRecord):
                    apply_record(records, item.key, item.value)
                elif isinstance(item, PartitionEnd):
                    return records, item.offset
    finally:
        reader.close()


def list_hooks(
    connection: Connection,
    *,
    app: str | None = None,
    declared: Sequence[Hook] = (),
) -> list[dict[str, Any]]:
    """The hooks of one application, or of all on this log, with their counts, in plain values.

    `behind` is how many offsets of its topic a hook has not reached; None if the topic is
    gone. Declared hooks that have never run are listed, too.
    """
    present = set(topic_names(connection))
    apps = [app] if app is not None else _apps(present)
    records = {
        each: read_state(connection, state_topic(each))[0] if state_topic(each) in present else StateRecords()
        for each in apps
    }
    if app is not None:
        for hook in declared:
            new = HookState.new(app, hook, 0)
            new.problem = "has never run; `headrace run` starts its deliverer"
            records[app].states.setdefault(hook.name, new)
    topics = {state.topic for each in records.values() for state in each.states.values()} & present
    facts = TopicLookup(connection).topics(topics) if topics else {}
    return [
        _listed(state, each, facts) for each in records.values() for _, state in sorted(each.states.items())
    ]


def _apps(present: set[str]) -> list[str]:
    named = [each.removesuffix(_SUFFIX) for each in present if each.endswith(_SUFFIX)]
    return sorted(each for each in named if each and hook_dead_topic(each) in present)


def _listed(state: HookState, records: StateRecords, facts: Mapping[str, FollowedTopic]) -> dict[str, Any]:
    switch, topic = records.switches.get(state.hook), facts.get(state.topic)
    behind = None
    if topic is not None:
        behind = sum(max(0, end - state.positions.get(each, 0)) for each, end in topic.ends.items())
    return {
        **state.to_json(),
        "enabled": records.is_enabled(state.hook),
        "reason": None if switch is None else switch.reason,
        "behind": behind,
    }
