"""Where views are kept: each in a place of its own, and none on a topic that something else writes."""

from collections.abc import Iterable

from headrace.app.application import App, View
from headrace.app.diagnostics.mistakes import placed
from headrace.app.diagnostics.places import place_of
from headrace.app.plan.names import dead_topic, late_topic
from headrace.errors import ConfigError
from headrace.views import topic_of_view

__all__ = ["require_places", "topics_of"]


def require_places(app: App, views: Iterable[View]) -> None:
    """Raises ConfigError for a view on a topic of others, and for two that nothing tells apart."""
    taken: dict[object, View] = {}
    owners = _owners(app)
    for view in views:
        for topic in topics_of(app, view):
            if topic in owners:
                with placed(place_of(view.function), view.name):
                    raise ConfigError(
                        f"topic {topic!r} belongs to {owners[topic]}, which alone writes it; "
                        "name another topic"
                    )
        place, words = _place(app, view)
        other = taken.setdefault(place, view)
        if other is not view:
            with placed(place_of(view.function), view.name):
                raise ConfigError(f"view {view.name!r} cannot be kept where view {other.name!r} is: {words}")


def _place(app: App, view: View) -> tuple[object, str]:
    """Where a view is, such that no other can be there; and why not."""
    url = "" if view.topic is not None else view.store or app.store or ""
    kept = (None, view.topic) if view.topic is not None else topic_of_view(url, view.name)
    if kept is not None:
        return (
            kept,
            f"topic {kept[1]!r} holds one view; name another, or write topic://prefix* for one a view",
        )
    if not url or url.startswith("sqlite:"):
        return (url, view.name.lower()), "SQLite does not tell names apart by case; rename one of them"
    return (url, view.name), "they have one name"


def _owners(app: App) -> dict[str, str]:
    """The topics that an application writes otherwise than by its views, each with what writes it."""
    owners = {
        dead_topic(app.name): "the application's dead letters",
        late_topic(app.name): "the application's late records",
    }
    if app.entity_types:
        from headrace.sourcing import Topics

        for name in app.entity_types:
            of = Topics.of(app.name, name)
            owners |= dict.fromkeys((of.commands, of.events, of.answers, of.snapshots), f"entity {name!r}")
    if app.captures:
        from headrace.capture import table_topic, transaction_topic

        for spec in app.captures.values():
            captured = [table_topic(spec.name, table) for table in spec.tables]
            owners |= dict.fromkeys([*captured, transaction_topic(spec.name)], f"capture {spec.name!r}")
    return owners


def topics_of(app: App, view: View) -> list[str]:
    """The topic of the application's log that a view is, or is kept on, if there is one."""
    if view.topic is not None:
        return [view.topic]
    kept = topic_of_view(view.store or app.store or "", view.name)
    return [kept[1]] if kept is not None and kept[0] is None else []
