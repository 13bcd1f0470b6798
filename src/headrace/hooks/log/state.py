"""The state of hooks, as it is kept on the log. Values and their records; no I/O.

The compacted topic `<application>.hooks` has two records per hook. `<hook>/state` is written
by the deliverer only, in the same transaction as the hook's offsets and dead letters.
`<hook>/switch` says whether the hook is on; it is written by `headrace hooks`, the console, or
the deliverer when a receiver answers that it is gone. The newest counts.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from headrace.errors import CorruptionError
from headrace.hooks.hook import Hook
from headrace.hooks.log.marks import Marks

__all__ = [
    "COUNTS",
    "HookState",
    "HookSwitch",
    "LastAttempt",
    "StateRecords",
    "apply_record",
    "state_key",
    "switch_key",
]

FORMAT = 1
COUNTS = ("delivered", "retried", "muted", "refused", "dead", "missed")
"""delivered: accepted by the receiver; retried: attempts that failed and were repeated; muted: not sent,
because it was sent before or is older than the hook; refused: given up at once; dead: all that were given
up, refused or tried too often; missed: removed by retention before they could be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSwitch:
    """Whether a hook is on, and why."""

    enabled: bool
    reason: str
    at_ms: int

    def to_bytes(self) -> bytes:
        return orjson.dumps({"enabled": self.enabled, "reason": self.reason, "at_ms": self.at_ms})


@dataclass(frozen=True, slots=True, kw_only=True)
class LastAttempt:
    """The last attempt of a hook."""

    at_ms: int
    outcome: str
    reason: str


@dataclass(slots=True, kw_only=True)
class HookState:
    """A hook's progress, its counters, and what it must not send again.

    `positions` are the next offsets of the topic that it follows, `topic_ids` the ids of that
    topic and of its source topics. `problem` says why it cannot deliver at present.
    """

    app: str
    hook: str
    kind: str
    topic: str
    shown: str
    since_ms: int
    positions: dict[int, int] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    marks: Marks = field(default_factory=Marks)
    last: LastAttempt | None = None
    problem: str | None = None

    @classmethod
    def new(cls, app: str, hook: Hook, now_ms: int) -> "HookState":
        """The state of a hook that is enabled for the first time."""
        return cls(
            app=app,
            hook=hook.name,
            kind=hook.kind,
            topic=hook.topic,
            shown=hook.target.shown,
            since_ms=now_ms,
        )

    def to_bytes(self) -> bytes:
        """The value of the record on the log."""
        last = self.last
        fields = {
            "format": FORMAT,
            **self.to_json(),
            "topic_ids": self.topic_ids,
            "marks": self.marks.to_json(),
            "last": last and {"at_ms": last.at_ms, "outcome": last.outcome, "reason": last.reason},
        }
        return orjson.dumps(fields)

    def to_json(self) -> dict[str, Any]:
        """The part for people, in plain values."""
        last = self.last
        return {
            "app": self.app,
            "hook": self.hook,
            "kind": self.kind,
            "topic": self.topic,
            "shown": self.shown,
            "since_ms": self.since_ms,
            "positions": {str(partition): offset for partition, offset in sorted(self.positions.items())},
            "counts": {name: self.counts[name] for name in COUNTS},
            "last": last and {"at_ms": last.at_ms, "outcome": last.outcome, "reason": last.reason},
            "problem": self.problem,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "HookState":
        """The state that `to_bytes` was called on."""
        return cls(
            **{name: data[name] for name in ("app", "hook", "kind", "topic", "shown", "since_ms", "problem")},
            positions={int(partition): offset for partition, offset in data["positions"].items()},
            topic_ids=dict(data["topic_ids"]),
            counts=Counter(data["counts"]),
            marks=Marks.from_json(data["marks"]),
            last=LastAttempt(**data["last"]) if data["last"] else None,
        )


@dataclass(slots=True)
class StateRecords:
    """The newest record of each key of a state topic."""

    states: dict[str, HookState] = field(default_factory=dict)
    switches: dict[str, HookSwitch] = field(default_factory=dict)

    def is_enabled(self, hook: str) -> bool:
        """Whether it is on: it is unless it was turned off."""
        return hook not in self.switches or self.switches[hook].enabled


def state_key(hook: str) -> bytes:
    return f"{hook}/state".encode()


def switch_key(hook: str) -> bytes:
    return f"{hook}/switch".encode()


def apply_record(records: StateRecords, key: bytes | None, value: bytes | None) -> None:
    """Applies one more record; raises CorruptionError if it is not one of these."""
    name, _, what = (key or b"").decode(errors="replace").rpartition("/")
    if value is None:
        records.states.pop(name, None) if what == "state" else records.switches.pop(name, None)
        return
    try:
        data = orjson.loads(value)
        if what == "switch":
            records.switches[name] = HookSwitch(**data)
        elif what == "state":
            if data["format"] > FORMAT:
                raise CorruptionError(
                    f"the state of hook {name!r} was written by a newer version; use that version here too"
                )
            records.states[name] = HookState.from_json(data)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(
            f"the record {name}/{what} of a hook state topic cannot be read ({type(error).__name__}: {error})"
        ) from error
