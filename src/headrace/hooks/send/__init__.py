"""How a record is sent: webhooks and email, signed, to addresses that are permitted."""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.hooks.send.mail import EmailSender as EmailSender
    from headrace.hooks.send.messages import Delivery as Delivery
    from headrace.hooks.send.messages import HookSender as HookSender
    from headrace.hooks.send.messages import sample_delivery as sample_delivery
    from headrace.hooks.send.outcomes import DeliveryOutcome as DeliveryOutcome
    from headrace.hooks.send.outcomes import DeliveryResult as DeliveryResult
    from headrace.hooks.send.signing import parse_secrets as parse_secrets
    from headrace.hooks.send.signing import signature as signature
    from headrace.hooks.send.webhook import WebhookSender as WebhookSender

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "mail": "EmailSender",
        "messages": "Delivery HookSender sample_delivery",
        "outcomes": "DeliveryOutcome DeliveryResult",
        "signing": "parse_secrets signature",
        "webhook": "WebhookSender",
    },
)
