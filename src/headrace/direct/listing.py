"""What is known of hooks, from the log alone: for the command line and the console."""

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.client import Connection
from headrace.direct.asking import LogQuestions, TopicFacts
from headrace.direct.hook import Hook, dead_topic, state_topic
from headrace.direct.reading import read_state
from headrace.direct.state import HookState, Kept
from headrace.views.topics import topic_names

__all__ = ["list_hooks"]

_SUFFIX = state_topic("")


def list_hooks(
    connection: Connection,
    *,
    app: str | None = None,
    declared: Sequence[Hook] = (),
) -> list[dict[str, Any]]:
    """The hooks of one application, or of all on this log, with their counts, in plain values.

    `behind` is how many offsets of its topic a hook has not come to; None if the topic is
    gone. Hooks that are declared but were never at work are listed, too.
    """
    present = set(topic_names(connection))
    apps = [app] if app is not None else _apps(present)
    kept = {
        each: read_state(connection, state_topic(each))[0] if state_topic(each) in present else Kept()
        for each in apps
    }
    if app is not None:
        for hook in declared:
            unseen = HookState.new(app, hook, 0)
            unseen.problem = "was never at work; `headrace run` starts its deliverer"
            kept[app].states.setdefault(hook.name, unseen)
    topics = {state.topic for each in kept.values() for state in each.states.values()} & present
    facts = LogQuestions(connection).topics(topics) if topics else {}
    return [_listed(state, each, facts) for each in kept.values() for _, state in sorted(each.states.items())]


def _apps(present: set[str]) -> list[str]:
    named = [each.removesuffix(_SUFFIX) for each in present if each.endswith(_SUFFIX)]
    return sorted(each for each in named if each and dead_topic(each) in present)


def _listed(state: HookState, kept: Kept, facts: Mapping[str, TopicFacts]) -> dict[str, Any]:
    switch, topic = kept.switches.get(state.hook), facts.get(state.topic)
    behind = None
    if topic is not None:
        behind = sum(max(0, end - state.positions.get(each, 0)) for each, end in topic.ends.items())
    return {
        **state.to_json(),
        "enabled": kept.is_enabled(state.hook),
        "reason": None if switch is None else switch.reason,
        "behind": behind,
    }
