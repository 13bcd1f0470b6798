"""Records that a hook gave up, as dead letters. Pure.

A dead letter is the record as it was, with the headers of every dead letter
(`headrace.dead.reason`, `.topic`, `.partition`, `.offset`, `.group`, `.timestamp_ms`), so that
`headrace deadletters` lists and redrives it. Two headers stay on a redriven record:
`headrace.hook.name`, the only hook that it is for, and `headrace.hook.id`, the id under which
its receiver may know it.
"""

from headrace.client import LARGEST_RECORD_BYTES
from headrace.client.deadletters import shortened
from headrace.client.write import OutputRecord
from headrace.hooks.hook import hook_dead_topic, hook_group
from headrace.hooks.log.records import HookRecord, is_message_id
from headrace.records import HOOK_ID_HEADER, HOOK_NAME_HEADER, STREAM_PREFIX, encode_headers

__all__ = ["addressee", "dead_letter", "earlier_id", "gap_notice", "shortened_letter"]

_MAX_ADDED_BYTES = 2_048  # no header that a hook adds is longer


def dead_letter(app: str, hook: str, record: HookRecord, message_id: str, reason: str) -> OutputRecord:
    """The record, with the reason why it was given up."""
    own = tuple(each for each in record.headers if each[0] not in (HOOK_NAME_HEADER, HOOK_ID_HEADER))
    about = {
        "reason": reason,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "group": hook_group(app, hook),
        "timestamp_ms": record.timestamp_ms,
    }
    added = (
        *encode_headers(STREAM_PREFIX, about),
        (HOOK_NAME_HEADER, hook.encode()),
        (HOOK_ID_HEADER, message_id.encode()),
    )
    return OutputRecord(
        hook_dead_topic(app),
        *shortened(
            record.key, record.value, own, added, prefix=STREAM_PREFIX, most_bytes=LARGEST_RECORD_BYTES
        ),
    )


def shortened_letter(record: OutputRecord, most_bytes: int) -> OutputRecord:
    """The dead letter, shortened to what its topic takes if it is larger."""
    added = tuple(
        (name, value)
        for name, value in record.headers
        if name.startswith((STREAM_PREFIX, HOOK_NAME_HEADER, HOOK_ID_HEADER))
        and len(value or b"") <= _MAX_ADDED_BYTES
    )
    own = tuple(each for each in record.headers if each not in added)
    key, value, headers = shortened(
        record.key, record.value, own, added, prefix=STREAM_PREFIX, most_bytes=most_bytes
    )
    return record._replace(key=key, value=value, headers=headers)


def gap_notice(app: str, hook: str, topic: str, partition: int, first: int, following: int) -> OutputRecord:
    """A notice of records that retention removed before they could be sent; it cannot be redriven."""
    reason = (
        f"offsets {first} to {following - 1} of {topic}:{partition} were removed by retention before this "
        "hook could send them"
    )
    headers = encode_headers(STREAM_PREFIX, {"reason": reason, "group": hook_group(app, hook)})
    return OutputRecord(hook_dead_topic(app), None, None, headers)


def addressee(record: HookRecord) -> str | None:
    """The only hook that a record is for; None if it is for all."""
    name = record.header(HOOK_NAME_HEADER)
    return None if name is None else name.decode(errors="replace")


def earlier_id(record: HookRecord) -> str | None:
    """The message id of a record when it was given up."""
    value = (record.header(HOOK_ID_HEADER) or b"").decode(errors="replace")
    return value if is_message_id(value) else None
