"""How a console sends what changes to those who subscribed: watched and read once, bounded for slow readers.

Knows no topic and no view.
"""

from headrace.console.push.event_stream import Subscriptions
from headrace.console.push.read_cache import ReadCaches
from headrace.console.push.send_buffers import SendBuffers
from headrace.console.push.watch import Watches

__all__ = ["ReadCaches", "SendBuffers", "Subscriptions", "Watches"]
