"""A made-up record, to try a hook's target with. Pure."""

import orjson

from headrace.direct.hook import Hook
from headrace.direct.positions import Record, Source, message_id
from headrace.direct.sending import Message

__all__ = ["made_up_message"]


def made_up_message(hook: Hook, now_ms: int) -> Message:
    """A message that says it is a test; its id is unlike that of any record."""
    record = Record(
        topic=hook.topic,
        partition=0,
        offset=0,
        timestamp_ms=now_ms,
        key=None,
        value=orjson.dumps({"test": True, "hook": hook.name}),
    )
    source = Source(hook.topic, 0, 0)
    return Message(id=message_id(hook.topic, f"test at {now_ms}", source), record=record, source=source)
