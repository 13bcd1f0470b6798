"""Records that a hook gave up, as dead letters. Pure.

A letter is the record as it was, with the headers of every dead letter
(`headrace.dead.reason`, `.topic`, `.partition`, `.offset`, `.group`, `.timestamp_ms`), so
that `headrace deadletters` lists it and sends it again. Two headers stay on a record that
was sent again: `headrace.hook.name`, the only hook that it is for, and `headrace.hook.id`,
the id under which its receiver may know it.
"""

from headrace.direct.hook import dead_topic, group_of
from headrace.direct.positions import Record, is_message_id
from headrace.views import OutputRecord

__all__ = ["addressee", "gap_letter", "kept_id", "letter"]

_NAME, _ID = "headrace.hook.name", "headrace.hook.id"


def letter(app: str, hook: str, record: Record, message_id: str, reason: str) -> OutputRecord:
    """The record, and why it was given up."""
    own = tuple(each for each in record.headers if each[0] not in (_NAME, _ID))
    about = {
        "headrace.dead.reason": reason,
        "headrace.dead.topic": record.topic,
        "headrace.dead.partition": record.partition,
        "headrace.dead.offset": record.offset,
        "headrace.dead.group": group_of(app, hook),
        "headrace.dead.timestamp_ms": record.timestamp_ms,
        _NAME: hook,
        _ID: message_id,
    }
    headers = (*own, *((name, str(value).encode()) for name, value in about.items()))
    return OutputRecord(dead_topic(app), record.key, record.value, headers)


def gap_letter(app: str, hook: str, topic: str, partition: int, first: int, following: int) -> OutputRecord:
    """Word of records that retention removed before they could be sent; it cannot be sent again."""
    reason = (
        f"offsets {first} to {following - 1} of {topic}:{partition} were removed by retention before this "
        "hook could send them"
    )
    headers = (
        ("headrace.dead.reason", reason.encode()),
        ("headrace.dead.group", group_of(app, hook).encode()),
    )
    return OutputRecord(dead_topic(app), None, None, headers)


def addressee(record: Record) -> str | None:
    """The only hook that a record is for; None if it is for all."""
    name = record.header(_NAME)
    return None if name is None else name.decode(errors="replace")


def kept_id(record: Record) -> str | None:
    """The id that a record had when it was given up."""
    value = (record.header(_ID) or b"").decode(errors="replace")
    return value if is_message_id(value) else None
