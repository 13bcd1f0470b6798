"""Derived systems in an application: what `app.follow` is given, as a follower."""

from typing import Literal

from headrace.app.captured import CapturedTable
from headrace.app.relation import Table
from headrace.derived import Follow, TargetSpec

__all__ = ["make_follow"]


def make_follow(
    followed: Table | CapturedTable | str,
    into: TargetSpec,
    *,
    name: str | None,
    format: Literal["upserts", "debezium", "changelog"] | None,  # noqa: A002 - as in `app.table`
    transactions: str | None,
) -> Follow:
    """A follower; without a name it is called after its topic and target."""
    topic, known, cuts = _topic(followed)
    return Follow(
        name=name or f"{topic}.{into.kind}",
        topic=topic,
        into=into,
        format=format or known,
        transactions=cuts if transactions is None else transactions,
    )


def _topic(
    followed: Table | CapturedTable | str,
) -> tuple[str, Literal["upserts", "debezium", "changelog"], str]:
    """The topic, its format, and the topic with the cuts of its source."""
    if isinstance(followed, CapturedTable):
        followed.require_key()
        return followed.topic, "debezium", followed.transactions or ""
    if isinstance(followed, Table):
        spec = followed.spec
        return spec.topic, "debezium" if spec.table == "debezium" else "upserts", spec.transactions
    return followed, "upserts", ""
