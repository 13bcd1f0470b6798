"""What can be set for one queue: Kafka's group configurations, and ours."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headrace.errors import RequestError
from headrace.groups.settings import GroupSettings

__all__ = [
    "DEAD_LETTER_PREFIX",
    "DEAD_LETTER_TOPIC",
    "GROUP_CONFIGS",
    "GroupConfig",
    "ShareConfig",
    "check_overrides",
    "dead_letter_topic",
]

DEAD_LETTER_PREFIX = "dlq."
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
INVALID_CONFIG = 40
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_DURATION = re.compile(r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_MIN_LOCK_MS, _MAX_LOCK_MS = 1_000, 3_600_000


class GroupConfig(NamedTuple):
    """One setting: its type in Kafka's words, what it is without an override, whether a value is allowed."""

    kind: str
    default: Callable[[GroupSettings], str]
    is_valid: Callable[[str], bool]
    expected: str
    help: str


def _between(low: int, high: int) -> Callable[[str], bool]:
    return lambda text: text.isdecimal() and low <= int(text) <= high


def _one_of(*words: str) -> Callable[[str], bool]:
    return lambda text: text in words


def _is_reset(text: str) -> bool:
    return text in ("earliest", "latest") or _DURATION.fullmatch(text) is not None


def _is_dead_letter_topic(text: str) -> bool:
    return not text or (text.startswith(DEAD_LETTER_PREFIX) and _TOPIC.fullmatch(text) is not None)


def _flag(default: str, help_text: str) -> GroupConfig:
    return GroupConfig("bool", lambda _: default, _one_of("true", "false"), "true or false", help_text)


GROUP_CONFIGS: dict[str, GroupConfig] = {
    "share.session.timeout.ms": GroupConfig(
        "int",
        lambda s: str(s.group_share_session_timeout_ms),
        _between(1_000, 1_800_000),
        "1000 to 1800000",
        "A member that is silent for so long is removed.",
    ),
    "share.heartbeat.interval.ms": GroupConfig(
        "int",
        lambda s: str(s.group_share_heartbeat_interval_ms),
        _between(100, 600_000),
        "100 to 600000",
        "How often members are told to heartbeat.",
    ),
    "share.record.lock.duration.ms": GroupConfig(
        "int",
        lambda s: str(s.group_share_record_lock_duration_ms),
        _between(_MIN_LOCK_MS, _MAX_LOCK_MS),
        f"{_MIN_LOCK_MS} to {_MAX_LOCK_MS}",
        "How long a lease lasts unless it is renewed.",
    ),
    "share.delivery.count.limit": GroupConfig(
        "int",
        lambda s: str(s.group_share_delivery_count_limit),
        _between(1, 1_000),
        "1 to 1000",
        "A record that was delivered so often and is given back is given up.",
    ),
    "share.partition.max.record.locks": GroupConfig(
        "int",
        lambda s: str(s.group_share_partition_max_record_locks),
        _between(1, 100_000),
        "1 to 100000",
        "Records of one partition that may be in flight.",
    ),
    "share.auto.offset.reset": GroupConfig(
        "string",
        lambda _: "latest",
        _is_reset,
        "earliest, latest or by_duration:PnDTnHnMnS",
        "Where the queue begins in a partition that it has not read yet.",
    ),
    "share.isolation.level": GroupConfig(
        "string",
        lambda _: "read_uncommitted",
        _one_of("read_uncommitted", "read_committed"),
        "read_uncommitted or read_committed",
        "Whether records of open and aborted transactions are delivered.",
    ),
    "share.renew.acknowledge.enable": _flag("true", "Whether a consumer may renew a lease."),
    "headrace.share.lease": GroupConfig(
        "string",
        lambda _: "timed",
        _one_of("timed", "heartbeat"),
        "timed or heartbeat",
        "timed: a lease ends after its duration, as in Kafka; heartbeat: not while its member heartbeats.",
    ),
    DEAD_LETTER_TOPIC: GroupConfig(
        "string",
        lambda _: "",
        _is_dead_letter_topic,
        f"the name of a topic that begins with {DEAD_LETTER_PREFIX}",
        f"Where records that were given up go; empty: {DEAD_LETTER_PREFIX} and the group's id.",
    ),
    "headrace.deadletterqueue.enable": _flag(
        "true", "Whether records that were given up are kept in a dead-letter topic; false: as in Kafka."
    ),
}


def check_overrides(overrides: Mapping[str, str]) -> None:
    """Raises RequestError (INVALID_CONFIG) for a name that is not known or a value that is not allowed."""
    for name, value in overrides.items():
        known = GROUP_CONFIGS.get(name)
        if known is None:
            raise RequestError(
                f"{name} cannot be set for a group; there are {', '.join(GROUP_CONFIGS)}", code=INVALID_CONFIG
            )
        if not known.is_valid(value):
            raise RequestError(f"{name} is {value!r}; it takes {known.expected}", code=INVALID_CONFIG)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConfig:
    """The settings of one queue as decisions need them."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    reset: str = "latest"
    read_committed: bool = False
    renewals: bool = True
    lease_by_heartbeat: bool = False
    dead_letters: bool = True
    dead_letter_topic: str = ""

    @classmethod
    def of(cls, group_id: str, overrides: Mapping[str, str], settings: GroupSettings) -> "ShareConfig":
        """What holds for a group: its overrides, else the broker's settings."""
        values = {
            name: overrides.get(name, config.default(settings)) for name, config in GROUP_CONFIGS.items()
        }
        return cls(
            session_timeout_ms=int(values["share.session.timeout.ms"]),
            heartbeat_interval_ms=int(values["share.heartbeat.interval.ms"]),
            lock_duration_ms=int(values["share.record.lock.duration.ms"]),
            delivery_count_limit=int(values["share.delivery.count.limit"]),
            max_record_locks=int(values["share.partition.max.record.locks"]),
            reset=values["share.auto.offset.reset"],
            read_committed=values["share.isolation.level"] == "read_committed",
            renewals=values["share.renew.acknowledge.enable"] == "true",
            lease_by_heartbeat=values["headrace.share.lease"] == "heartbeat",
            dead_letters=values["headrace.deadletterqueue.enable"] == "true",
            dead_letter_topic=values[DEAD_LETTER_TOPIC] or dead_letter_topic(group_id),
        )

    @property
    def reset_age_ms(self) -> int | None:
        """How far back a queue begins that begins at a time; None: it does not."""
        found = _DURATION.fullmatch(self.reset)
        if found is None:
            return None
        days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
        return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def dead_letter_topic(group_id: str) -> str:
    """The default name: what a topic's name cannot hold becomes an underscore."""
    return DEAD_LETTER_PREFIX + re.sub(r"[^a-zA-Z0-9._-]", "_", group_id)[:200]
