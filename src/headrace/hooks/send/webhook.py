"""Webhooks: signed deliveries to addresses that are permitted."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from headrace.clock import Clock, SystemClock
from headrace.hooks.addresses import is_permitted, parse_networks
from headrace.hooks.hook import Webhook, check_url
from headrace.hooks.send.http_post import HttpConnection, NotHttpError, connect, post
from headrace.hooks.send.messages import Delivery, webhook_body
from headrace.hooks.send.outcomes import DeliveryOutcome, DeliveryResult, of_status, retry_after_s
from headrace.hooks.send.signing import parse_secrets, signed_headers
from headrace.secret_references import resolve

__all__ = ["WebhookSender"]


class WebhookSender:
    """Posts messages to one URL, each over a connection of its own.

    The name is resolved for every attempt, and only addresses that were checked are connected
    to. Certificates are verified. The constructor raises ConfigError if a secret is missing.
    """

    def __init__(
        self, target: Webhook, *, environment: Mapping[str, str] | None = None, clock: Clock | None = None
    ) -> None:
        url = resolve(target.url, "url=", environment)
        self._host = check_url(url)
        parts = urlsplit(url)
        self._authority = parts.netloc
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._secrets = parse_secrets(resolve(target.secret, "secret=", environment), target.secret)
        self._allowed = parse_networks(target.allow)
        self._timeout_s = target.timeout_s
        self._clock = clock or SystemClock()

    async def send(self, message: Delivery) -> DeliveryOutcome:
        """One attempt."""
        body = webhook_body(message.record, message.source)
        now_s = self._clock.now_ms() // 1000
        headers = {
            "host": self._authority,
            "user-agent": "headrace",
            "content-type": "application/json",
            "accept": "*/*",
            **signed_headers(self._secrets, message.id, now_s, body),
        }
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await post(await self._connect(), self._path, headers, body)
        except TimeoutError:
            return _failed(f"no response within {self._timeout_s:g} s")
        except ssl.SSLCertVerificationError as error:
            return _failed(f"the certificate of {self._host} is not trusted: {error.verify_message}")
        except (OSError, NotHttpError, UnicodeError) as error:
            return _failed(f"{self._host}: {error or type(error).__name__}")
        asked_s = retry_after_s(answer.headers.get("retry-after"), now_s)
        return of_status(answer.status, answer.said if answer.status >= 300 else "", asked_s)

    def close(self) -> None:
        """Nothing is open between two attempts."""

    async def _connect(self) -> HttpConnection:
        """Connects to the first reachable address of the host; raises OSError."""
        addresses = await self._addresses()
        for address in addresses[:-1]:
            with contextlib.suppress(OSError):  # a TimeoutError is one
                async with asyncio.timeout(self._timeout_s / (2 * len(addresses))):
                    return await connect(address, self._port, tls=self._tls, host=self._host)
        return await connect(addresses[-1], self._port, tls=self._tls, host=self._host)

    async def _addresses(self) -> list[str]:
        """The permitted addresses of the host; raises OSError if there are none."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        listed = list(dict.fromkeys(str(each[4][0]) for each in found))
        permitted = [each for each in listed if is_permitted(each, self._allowed)]
        if not permitted:
            shown = ", ".join(listed)
            raise OSError(f"{shown} is not a public address; to permit it, use allow=[…]")
        return permitted


def _failed(reason: str) -> DeliveryOutcome:
    return DeliveryOutcome(result=DeliveryResult.RETRY, reason=reason)
