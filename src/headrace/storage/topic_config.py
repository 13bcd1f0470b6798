"""A topic's configuration, by Kafka's names.

One frozen dataclass: a field `retention_ms` is the setting `retention.ms`. The
broker lists `SETTINGS` when a client asks what can be configured.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headrace.errors import RequestError

__all__ = ["SETTINGS", "Setting", "TopicConfig"]

_INVALID_CONFIG = 40
_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1


class Setting(NamedTuple):
    """What a client may know of one topic setting: `kind` is int, long, double, boolean, string or list."""

    name: str
    kind: str
    default: str
    help: str


def _setting(default: Any, kind: str, check: Callable[[Any], str | None], help: str) -> Any:  # noqa: A002
    return dataclasses.field(default=default, metadata={"kind": kind, "check": check, "help": help})


def _between(low: float, high: float) -> Callable[[Any], str | None]:
    return lambda value: None if low <= value <= high else f"must be from {low} to {high}"


def _one_of(*allowed: str, why: str = "") -> Callable[[Any], str | None]:
    return lambda value: None if value in allowed else f"must be one of {', '.join(allowed)}{why}"


def _policies(value: str) -> str | None:
    parts = [part.strip() for part in value.split(",")]
    good = parts and all(part in ("delete", "compact") for part in parts)
    return None if good else "must be delete, compact, or both separated by a comma"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """How one topic is kept. Made by `from_overrides`, which refuses unknown names and bad values."""

    cleanup_policy: str = _setting(
        "delete",
        "list",
        _policies,
        "delete: old segments are removed; compact: the newest record of each key is kept",
    )
    compression_type: str = _setting(
        "producer",
        "string",
        _one_of("producer", why=": batches are kept as the producer compressed them, never recompressed"),
        "Always producer: batches are kept byte for byte as they came",
    )
    delete_retention_ms: int = _setting(
        86_400_000,
        "long",
        _between(0, _LONG_MAX),
        "How long compaction keeps a tombstone, so that readers see it",
    )
    file_delete_delay_ms: int = _setting(
        60_000,
        "long",
        _between(0, _LONG_MAX),
        "Accepted for compatibility; files are removed at once, and a reader of one keeps it until done",
    )
    flush_messages: int = _setting(
        1, "long", _between(1, 1), "Always 1: every acknowledged batch is synced first"
    )
    headrace_lag_alert_ratio: float = _setting(
        0.8,
        "double",
        _between(0, 1),
        "A group that has used up this share of retention, in bytes or age, raises an alert; 0: never",
    )
    headrace_overload: str = _setting(
        "buffer",
        "string",
        _one_of("buffer", "block", "drop-oldest", "drop-newest"),
        "What to do when groups are more than headrace.overload.bytes behind; buffer: keep everything",
    )
    headrace_overload_bytes: int = _setting(
        67_108_864,
        "long",
        _between(1024, _LONG_MAX),
        "Unread bytes of the slowest active group in a partition from which headrace.overload acts",
    )
    headrace_storage: str = _setting(
        "disk",
        "string",
        _one_of("disk", "memory"),
        "memory: fast, bounded by retention.bytes (64 MiB if unset), gone on restart; chosen at creation",
    )
    index_interval_bytes: int = _setting(
        16_384, "int", _between(256, _INT_MAX), "Bytes of a segment between two index entries"
    )
    max_compaction_lag_ms: int = _setting(
        _LONG_MAX,
        "long",
        _between(1, _LONG_MAX),
        "The longest time before a record is compacted, whatever the dirty ratio",
    )
    max_message_bytes: int = _setting(
        1_048_588,
        "int",
        _between(0, _INT_MAX),
        "The largest record batch accepted, compressed, header included",
    )
    message_timestamp_after_max_ms: int = _setting(
        3_600_000,
        "long",
        _between(0, _LONG_MAX),
        "A batch whose latest record is further ahead of the broker's clock is rejected",
    )
    message_timestamp_before_max_ms: int = _setting(
        _LONG_MAX,
        "long",
        _between(0, _LONG_MAX),
        "A batch whose first record is further behind the broker's clock is rejected",
    )
    message_timestamp_type: str = _setting(
        "CreateTime",
        "string",
        _one_of("CreateTime", "LogAppendTime"),
        "Whether records have the producer's timestamp or that of the append",
    )
    min_cleanable_dirty_ratio: float = _setting(
        0.5,
        "double",
        _between(0, 1),
        "Compaction runs once this share of the log was written since the last run",
    )
    min_compaction_lag_ms: int = _setting(
        0,
        "long",
        _between(0, _LONG_MAX),
        "A record younger than this is not compacted",
    )
    min_insync_replicas: int = _setting(
        1, "int", _between(1, 1), "Always 1: a log on one machine has one copy"
    )
    retention_bytes: int = _setting(
        -1,
        "long",
        _between(-1, _LONG_MAX),
        "Old segments are removed when a partition exceeds this size; -1: no limit",
    )
    retention_ms: int = _setting(
        604_800_000,
        "long",
        _between(-1, _LONG_MAX),
        "Segments whose newest record is older are removed; -1: no limit",
    )
    segment_bytes: int = _setting(
        1_073_741_824, "int", _between(1024, _INT_MAX), "A segment that would exceed this size is sealed"
    )
    segment_ms: int = _setting(
        604_800_000,
        "long",
        _between(1, _LONG_MAX),
        "A segment started longer ago is sealed at the next append",
    )

    @classmethod
    def from_overrides(cls, overrides: Mapping[str, str | None]) -> "TopicConfig":
        """The defaults with these on top; RequestError (INVALID_CONFIG) names the setting that is wrong."""
        values = {}
        for name, text in overrides.items():
            field = _FIELDS.get(name)
            if field is None:
                raise _invalid(f"unknown topic setting {name!r}; known are {', '.join(_FIELDS)}")
            if text is not None:
                values[field.name] = _parse(name, field, text)
        config = cls(**values)
        if config.is_in_memory and not config.deletes:
            raise _invalid("headrace.storage=memory needs delete in cleanup.policy, since memory is bounded")
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise _invalid("min.compaction.lag.ms must not exceed max.compaction.lag.ms")
        return config

    def as_strings(self) -> dict[str, str]:
        """Every setting by its Kafka name, as DescribeConfigs shows it."""
        return {name: _text(getattr(self, field.name)) for name, field in _FIELDS.items()}

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_in_memory(self) -> bool:
        return self.headrace_storage == "memory"

    @property
    def stamps_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"


def _invalid(message: str) -> RequestError:
    return RequestError(message, code=_INVALID_CONFIG)


def _parse(name: str, field: "dataclasses.Field[Any]", text: str) -> Any:
    kind = field.metadata["kind"]
    try:
        value: Any = (
            int(text) if kind in ("int", "long") else float(text) if kind == "double" else text.strip()
        )
    except ValueError:
        raise _invalid(f"{name}={text!r} is not a number; give a value of type {kind}") from None
    fault = field.metadata["check"](value)
    if fault is not None:
        raise _invalid(f"{name}={text!r} {fault}")
    return value


def _text(value: Any) -> str:
    return str(value)


_FIELDS = {field.name.replace("_", "."): field for field in dataclasses.fields(TopicConfig)}

SETTINGS: Mapping[str, Setting] = {
    name: Setting(name, field.metadata["kind"], _text(field.default), field.metadata["help"])
    for name, field in _FIELDS.items()
}
