"""How a record is sent: webhooks and email, signed, to addresses that are permitted."""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.hooks.send.messages import sample_delivery as sample_delivery
    from headrace.hooks.send.signing import parse_secrets as parse_secrets
    from headrace.hooks.send.signing import signature as signature

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "messages": "sample_delivery",
        "signing": "parse_secrets signature",
    },
)
