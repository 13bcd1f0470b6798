"""The state of a follower: how far its target reflects the topic. It is kept in the target. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

import orjson

from headrace.errors import CorruptionError

__all__ = ["FollowStart", "FollowState", "TopicFacts", "decide_start", "parse_state"]

_MARGIN_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowState:
    """What a target reflects: of each partition, the records before its position.

    `owner` is the follower at work: another that takes over writes its own, and the first stops.
    While positions are below `building`, rows are missing or old. `at_ms` is when it was last written;
    `rebuilt` is the last request to compare all rows that was met.
    """

    topic: str
    topic_id: str
    owner: str
    positions: Mapping[int, int] = field(default_factory=dict)
    building: Mapping[int, int] = field(default_factory=dict)
    at_ms: int = 0
    rebuilt: str = ""

    @property
    def is_building(self) -> bool:
        """Whether the target does not show a state that the topic had, but parts of one."""
        return any(self.positions.get(each, 0) < end for each, end in self.building.items())

    def moved(self, positions: Mapping[int, int], at_ms: int) -> "FollowState":
        """The state at these positions."""
        there = {**self.positions, **positions}
        left = {each: end for each, end in self.building.items() if there.get(each, 0) < end}
        return replace(self, positions=there, building=self.building if left else {}, at_ms=at_ms)

    def to_json(self) -> bytes:
        said = asdict(self)
        for name in ("positions", "building"):
            said[name] = {str(each): at for each, at in said[name].items()}
        return orjson.dumps(said)


def parse_state(value: bytes | str) -> FollowState:
    """The state that `to_json` wrote."""
    try:
        said = orjson.loads(value)
        for name in ("positions", "building"):
            said[name] = {int(each): int(at) for each, at in said[name].items()}
        return FollowState(**said)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptionError(
            f"the state of a follower in its target cannot be read ({error}); "
            "`headrace follow rebuild` brings the target in order"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """What the log says of a topic now.

    `goal` is how far it can be followed without half a transaction of its source; `tombstones_ms` is
    how long deletes stay, None if forever.
    """

    topic_id: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    goal: Mapping[int, int]
    tombstones_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FollowStart:
    """How a follower begins. `repair` compares all rows with the log first, and says why."""

    state: FollowState
    repair: bool = False
    why: str = ""


def decide_start(
    stored: FollowState | None,
    facts: TopicFacts,
    *,
    topic: str,
    owner: str,
    is_empty: bool,
    now_ms: int,
) -> FollowStart:
    """Whether to continue from the stored position, or to correct the whole target.

    An empty target is filled from the beginning of the topic. One that has rows, but no position
    that the log still continues from, is repaired: records read from now on would not show
    which of its rows no longer exist.
    """
    fresh = FollowState(topic=topic, topic_id=facts.topic_id, owner=owner, at_ms=now_ms)
    if stored is None:
        begun = replace(fresh, positions=dict(facts.starts), building=dict(facts.goal))
        if is_empty:
            return FollowStart(begun)
        why = "the target has rows but no position"
        return FollowStart(replace(fresh, building=dict(facts.goal)), True, why)
    taken = replace(stored, owner=owner)
    why = _why_repaired(stored, facts, topic, now_ms)
    return FollowStart(replace(fresh, building=dict(facts.goal)), True, why) if why else FollowStart(taken)


def _why_repaired(stored: FollowState, facts: TopicFacts, topic: str, now_ms: int) -> str:
    """Why the records behind the stored position do not lead to the topic's rows; empty if they do."""
    if stored.topic != topic:
        return f"the target reflects the topic {stored.topic}"
    if stored.topic_id != facts.topic_id:
        return f"the topic {topic} was deleted and created again"
    for partition, at in stored.positions.items():
        if partition not in facts.ends or at > facts.ends[partition]:
            return f"the log has lost records that the target reflects, up to {partition}:{at}"
        if at < facts.starts[partition]:
            return f"records from {partition}:{at} were removed from the log before they were followed"
    if stored.is_building and not stored.positions:
        return "a repair was not finished"
    behind = any(stored.positions.get(each, 0) < end for each, end in facts.ends.items())
    kept_ms = facts.tombstones_ms
    if behind and kept_ms is not None and now_ms - stored.at_ms > kept_ms - min(_MARGIN_MS, kept_ms // 2):
        return "the follower was away for longer than the topic keeps deletes (delete.retention.ms)"
    return ""
