"""The target that a follower names."""

from headrace.capture import sqlite_path
from headrace.derived.spec import Follow
from headrace.derived.target import Target
from headrace.errors import ConfigError

__all__ = ["open_target"]


def open_target(follow: Follow) -> Target:
    """A target that is not connected yet; raises ConfigError if a reference to a password leads nowhere."""
    into = follow.into
    if into.kind == "sqlite":
        from headrace.derived.targets.sqlite import SqliteTableTarget

        return SqliteTableTarget(sqlite_path(into.url), follow.name, **into.options)
    if into.kind == "search":
        from headrace.derived.targets.sqlite import SqliteSearchTarget

        return SqliteSearchTarget(sqlite_path(into.url), follow.name, **into.options)
    if into.kind == "postgres":
        from headrace.derived.targets.postgres import PostgresTableTarget

        return PostgresTableTarget(into.url, follow.name, **into.options)
    if into.kind == "redis":
        from headrace.derived.targets.redis import RedisTarget

        return RedisTarget(into.url, follow.name, **into.options)
    if into.kind == "mysql":
        from headrace.derived.targets.mysql import MysqlTableTarget

        return MysqlTableTarget(into.url, follow.name, **into.options)
    if into.kind == "opensearch":
        from headrace.derived.targets.opensearch import OpenSearchTarget

        return OpenSearchTarget(into.url, follow.name, **into.options)
    if into.kind == "delta":
        from headrace.derived.targets.delta import DeltaTarget

        return DeltaTarget(into.url, follow.name, **into.options)
    raise ConfigError(f"follower {follow.name}: there is no target of the kind {into.kind!r}")
