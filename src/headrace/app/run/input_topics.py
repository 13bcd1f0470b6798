"""The topics that an application reads and writes: created where they are missing, with what they must keep.

The rows of a table are in its topic and nowhere else. So a topic that is created for a table keeps
every record, one of a captured table the newest of each key; and a topic that somebody else created,
and that loses rows by their age or size, is named at the start.
"""

from collections.abc import Iterator, Mapping

from headrace.app.application import App
from headrace.app.plan.planner import AppPlan
from headrace.capture import table_topic
from headrace.client import LARGE_RECORD_CONFIGS, Connection
from headrace.client.topics import KEEP_ALL, TopicSettings, ensure_topics, named_configs

__all__ = ["create_app_topics", "tables_losing_rows"]

_CAPTURED = {"cleanup.policy": "compact", **LARGE_RECORD_CONFIGS}
_DERIVED = TopicSettings(partitions=4, configs=LARGE_RECORD_CONFIGS)
_POLICY, _AGE, _SIZE = _KEPT = "cleanup.policy", "retention.ms", "retention.bytes"
_UNBOUNDED = "-1"


def create_app_topics(plan: AppPlan, connection: Connection) -> None:
    """Creates the topics that streams and tables read and views write, where they are missing."""
    app = plan.app
    wanted = {topic: TopicSettings(partitions=each.partitions) for topic, each in app.streams.items()}
    captured = _captured_topics(app)
    wanted |= {
        topic: TopicSettings(partitions=each.partitions, configs=_CAPTURED if topic in captured else KEEP_ALL)
        for topic, each in app.tables.items()
    }
    cuts = [each.spec.transactions for each in app.tables.values() if each.spec.transactions]
    wanted |= dict.fromkeys(cuts, TopicSettings(partitions=1))
    columns = [each.spec.captured.topic for each in app.tables.values() if each.spec.captured]
    wanted |= dict.fromkeys(columns, TopicSettings(partitions=1, configs={"cleanup.policy": "compact"}))
    derived = [view.topic for view in app.views.values() if view.topic is not None]
    wanted |= dict.fromkeys(derived, _DERIVED)
    ensure_topics(connection, wanted)


def tables_losing_rows(app: App, connection: Connection) -> Iterator[str]:
    """A sentence for each table whose topic removes records that are still the current rows of their keys."""
    written = {view.topic for view in app.views.values()}
    for topic, configs in named_configs(connection, sorted(set(app.tables) - written), _KEPT).items():
        if limits := _limits(configs):
            yield (
                f"table {topic} loses rows: its topic removes records by {limits}, the current rows of "
                "keys among them. To keep them, run `headrace topics alter "
                f"{topic} --config retention.ms=-1 --config retention.bytes=-1`, or, to keep only the "
                f"newest of each key, `headrace topics alter {topic} --config cleanup.policy=compact`"
            )


def _captured_topics(app: App) -> set[str]:
    return {table_topic(name, each) for name, spec in app.captures.items() for each in spec.tables}


def _limits(configs: Mapping[str, str | None]) -> str:
    """By what such a topic removes records whatever their keys; empty if it does not, or does not say."""
    if "delete" not in (configs.get(_POLICY) or ""):
        return ""
    bounded = [each for each in (_AGE, _SIZE) if configs.get(each) not in (None, _UNBOUNDED)]
    return " and ".join(f"{each}={configs[each]}" for each in bounded)
