"""Out of the log to people and other programs: webhooks and email.

A *hook* follows a topic and sends every record to a URL or to email addresses: at least once,
in order per partition, and always under the same id, so that a receiver that remembers ids
takes each record once. The state of hooks is kept on the log itself; records that a hook has to
give up go to a dead-letter topic with the reason, and the others continue. A replay sends
nothing again.

`headrace deliver` runs the hooks of an application in a process of its own. May import `views`,
`client` and below.
"""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.hooks.backoff import Backoff as Backoff
    from headrace.hooks.deliverer import Deliverer as Deliverer
    from headrace.hooks.deliverer import make_sender as make_sender
    from headrace.hooks.deliverer import run_deliverer as run_deliverer
    from headrace.hooks.hook import Email as Email
    from headrace.hooks.hook import Hook as Hook
    from headrace.hooks.hook import Webhook as Webhook
    from headrace.hooks.hook import state_topic as state_topic

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "backoff": "Backoff",
        "deliverer": "Deliverer make_sender run_deliverer",
        "hook": "Email Hook Webhook state_topic",
    },
)
