"""Alerts about captures and followers, from what they say of themselves on the log. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.app.status import Alert

__all__ = ["capture_alerts", "follower_alerts"]

_SILENT_S = 60.0
_BEHIND_S = 60.0
_HELD_BYTES = 1 << 30


def capture_alerts(statuses: Mapping[str, Mapping[str, Any]], now: float) -> list[dict[str, Any]]:
    """Captures that stopped, cannot reach their database, let it hold much of its log, or run nowhere."""
    found = [alert for name, said in statuses.items() for alert in _of_capture(name, said, now)]
    return [each.to_json() for each in found]


def follower_alerts(statuses: Mapping[str, Mapping[str, Any]], now: float) -> list[dict[str, Any]]:
    """Followers that stopped, cannot reach their target, are far behind, gave up records, or run nowhere."""
    found = [alert for name, said in statuses.items() for alert in _of_follower(name, said, now)]
    return [each.to_json() for each in found]


def _of_capture(name: str, said: Mapping[str, Any], now: float) -> Iterator[Alert]:
    yield from _of_state("capture", name, said, now)
    lag = said.get("lag") or {}
    held = lag.get("held_bytes") or lag.get("bytes") or 0
    if held > _HELD_BYTES:
        yield Alert(
            kind="capture-held",
            subject=name,
            severity="warning",
            title=f"the database of capture {name} holds {held / (1 << 30):.1f} GB of its log",
            detail="it keeps what the capture has not read, and may run out of disk, or drop it",
            next=f"see that it runs and keeps up (`headrace capture status {name}`), or remove it",
            value=held,
            threshold=_HELD_BYTES,
            since=_seconds(said.get("at_ms")),
        )


def _of_follower(name: str, said: Mapping[str, Any], now: float) -> Iterator[Alert]:
    yield from _of_state("follower", name, said, now)
    behind, dead = said.get("seconds_behind") or 0.0, said.get("dead") or 0
    if behind > _BEHIND_S and said.get("state") == "following":
        yield Alert(
            kind="follower-behind",
            subject=name,
            severity="warning",
            title=f"follower {name} is {behind:.0f} seconds behind",
            detail=f"{said.get('behind') or 0:,} offsets of {said.get('topic')} are not in its target yet",
            next="check whether its target is slow",
            value=behind,
            threshold=_BEHIND_S,
            since=_seconds(said.get("at_ms")),
        )
    if dead:
        yield Alert(
            kind="follower-dead",
            subject=name,
            severity="warning",
            title=f"follower {name} gave up {dead:,} records",
            detail=f"their rows are not as the topic has them; the reasons are on {name}.dead",
            next=f"headrace deadletters list {name}.dead; then `headrace follow rebuild {name}`",
            value=dead,
            threshold=0,
            since=_seconds(said.get("at_ms")),
        )


def _of_state(kind: str, name: str, said: Mapping[str, Any], now: float) -> Iterator[Alert]:
    """That it stopped, cannot go on now, or that nobody runs it."""
    state, at = said.get("state"), _seconds(said.get("at_ms"))
    command = "capture" if kind == "capture" else "follow"
    if now - at > _SILENT_S and state != "paused":
        yield Alert(
            kind=f"{kind}-silent",
            subject=name,
            severity="warning",
            title=f"{kind} {name} is not running",
            detail=f"nobody has said anything of it for {now - at:.0f} seconds",
            next=f"start it: headrace {command} run {name}",
            value=now - at,
            threshold=_SILENT_S,
            since=at,
        )
    elif state in ("stopped", "reconnecting"):
        yield Alert(
            kind=kind,
            subject=name,
            severity="critical" if state == "stopped" else "warning",
            title=f"{kind} {name} has stopped" if state == "stopped" else f"{kind} {name} cannot go on now",
            detail=said.get("error") or "",
            next=f"headrace {command} status {name}",
            value=1,
            threshold=0,
            since=_seconds(said.get("error_at_ms") or said.get("at_ms")),
        )


def _seconds(at_ms: Any) -> float:
    return float(at_ms or 0) / 1000
