"""How a console sends what changes to those who subscribed: watched and read once, bounded for slow readers.

Knows no topic and no view.
"""

from headrace.console.push.event_stream import (
    EVENT_STREAM,
    HEARTBEAT,
    EventStream,
    StreamEvent,
    Subscriptions,
    resume_position,
    send_events,
    wait_pace,
)
from headrace.console.push.read_cache import ReadCache, ReadCaches
from headrace.console.push.send_buffers import (
    FULL,
    NO_CONNECTION,
    STALLED,
    ClientConnection,
    ConnectedReader,
    SendBuffers,
)
from headrace.console.push.watch import Watch, Watches

__all__ = [
    "EVENT_STREAM",
    "FULL",
    "HEARTBEAT",
    "NO_CONNECTION",
    "STALLED",
    "ClientConnection",
    "ConnectedReader",
    "EventStream",
    "ReadCache",
    "ReadCaches",
    "SendBuffers",
    "StreamEvent",
    "Subscriptions",
    "Watch",
    "Watches",
    "resume_position",
    "send_events",
    "wait_pace",
]
