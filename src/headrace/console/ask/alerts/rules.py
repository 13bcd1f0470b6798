"""Alerts from everything that raises some: the driver, its state, and the broker's events. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.app.status import FAILED, Alert, AppDescription, AppStatus

__all__ = ["driver_alerts", "event_alerts"]

_FALL_KEPT_S = 3600.0


def driver_alerts(app: AppDescription, status: AppStatus | None, *, running: bool) -> list[dict[str, Any]]:
    """What the application says of itself; of one that does not run, that it does not."""
    failed = [] if status is None else [_failed(name, each) for name, each in status.queries.items()]
    found = [each.to_json() for each in failed if each is not None]
    if running:
        return [*found, *(dict(each) for each in (status.alerts if status is not None else ()))]
    since = 0.0 if status is None else status.updated_at
    stopped = Alert(
        kind="driver",
        subject=app.app,
        severity="warning",
        title=f"{app.app} is not running",
        detail="its views show their state from when it stopped",
        next=f"start it: headrace run {app.file or 'FILE'}",
        value=1,
        threshold=0,
        since=since,
    )
    return [*found, stopped.to_json()]


def _failed(name: str, query: Any) -> Alert | None:
    if query.state != FAILED:
        return None
    return Alert(
        kind="query",
        subject=name,
        severity="critical",
        title=f"the query on {name} failed",
        detail=query.error or "",
        next="fix the cause and restart the application; it continues from its checkpoint",
        value=1,
        threshold=0,
        since=query.updated_at,
    )


def event_alerts(events: Iterable[Mapping[str, Any]], now: float) -> list[dict[str, Any]]:
    """Groups that retention is about to overtake, or overtook within the last hour."""
    near: dict[tuple[str, str, int], Alert] = {}
    fell: dict[tuple[str, str, int], Alert] = {}
    for event in events:
        place = str(event.get("group")), str(event.get("topic")), int(event.get("partition") or 0)
        match event.get("kind"):
            case "near-retention":
                near[place] = _near(event, place)
            case "caught-up":
                near.pop(place, None)
            case "fell-off":
                fell[place] = _fell(event, place)
    recent = [each for each in fell.values() if each.since > now - _FALL_KEPT_S]
    return [each.to_json() for each in (*recent, *near.values())]


def _near(event: Mapping[str, Any], place: tuple[str, str, int]) -> Alert:
    group, topic, partition = place
    return Alert(
        kind="near-retention",
        subject=f"{group} {topic}:{partition}",
        severity="warning",
        title=f"group {group} is about to lose records of {topic}:{partition}",
        detail=f"{float(event.get('share') or 0):.0%} of what retention keeps is unread",
        next="make its consumers faster, or raise retention.ms or retention.bytes of the topic",
        value=float(event.get("share") or 0),
        threshold=1,
        since=float(event.get("at_ms") or 0) / 1000,
    )


def _fell(event: Mapping[str, Any], place: tuple[str, str, int]) -> Alert:
    group, topic, partition = place
    records = int(event.get("records") or 0)
    return Alert(
        kind="fell-off",
        subject=f"{group} {topic}:{partition}",
        severity="critical",
        title=f"group {group} lost records of {topic}:{partition}",
        detail=f"{records:,} records were deleted before it had read them",
        next="they cannot be restored from this log; continue with what is left, or use another copy",
        value=records,
        threshold=0,
        since=float(event.get("at_ms") or 0) / 1000,
    )
