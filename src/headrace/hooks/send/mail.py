"""Email by SMTP: one message per record, with a Message-ID that stays the same.

TLS is used when the server offers it, and always when there is a password; certificates are
verified. Data of a record only reaches the subject as one line of printable characters, and
the body as text, so that no record can add a header or a recipient.
"""

import asyncio
import json
import re
import smtplib
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from headrace.clock import Clock, SystemClock
from headrace.errors import ConfigError
from headrace.hooks.hook import Email
from headrace.hooks.send.messages import Delivery, record_fields
from headrace.hooks.send.outcomes import DeliveryOutcome, DeliveryResult
from headrace.secret_references import resolve

__all__ = ["EmailSender", "MailServer", "compose", "fill", "parse_server"]

_SUBJECT_LETTERS = 300
_PART = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_.-]*)\}")
_OUR_NAME = "localhost"  # for EHLO: looking up the machine's own name may take seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    """A mail server. `tls` is offered, required, never, or smtps (from the first byte)."""

    host: str
    port: int
    tls: str
    user: str | None = None
    password: str = field(default="", repr=False)


def parse_server(url: str, name: str) -> MailServer:
    """From `smtp://user:password@host:587?tls=required` or `smtps://…`; raises ConfigError, naming `name`."""
    form = (
        "smtp://host:587, smtps://host, with user:password@ before the host, and ?tls=required or ?tls=never"
    )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigError(f"{name} is not the URL of a mail server; write {form}") from None
    tls = parse_qs(parts.query).get("tls", ["offered"])[-1]
    if parts.scheme not in ("smtp", "smtps") or not host or tls not in ("offered", "required", "never"):
        raise ConfigError(f"{name} is not the URL of a mail server; write {form}")
    user = unquote(parts.username) if parts.username else None
    if user is not None and tls == "never":
        raise ConfigError(f"{name} would send a password unencrypted; leave out ?tls=never")
    if parts.scheme == "smtps":
        tls = "smtps"
    elif user is not None:
        tls = "required"
    usual = 465 if tls == "smtps" else 587 if user is not None else 25
    return MailServer(
        host=host, port=port or usual, tls=tls, user=user, password=unquote(parts.password or "")
    )


def compose(target: Email, message: Delivery, now_s: float) -> EmailMessage:
    """The email for a record."""
    fields = record_fields(message.record)
    mail = EmailMessage(policy=SMTP)
    mail["From"] = target.sender
    mail["To"] = ", ".join(target.to)
    mail["Subject"] = _one_line(fill(target.subject, fields))
    mail["Date"] = formatdate(now_s)
    mail["Message-ID"] = f"<{message.id}@{target.sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail["Headrace-Source"] = str(message.source)
    mail.set_content(fill(target.template or "{_value}\n", fields))
    return mail


def fill(template: str, fields: Mapping[str, Any]) -> str:
    """The template with every name in braces replaced by its value.

    `{amount}` is a field of the record's JSON value, `{customer.name}` a field within one;
    `{_topic}`, `{_partition}`, `{_offset}`, `{_time}`, `{_key}` and `{_value}` are the record's
    own. `{{` and `}}` are braces. A name that the record does not have stays as it is written,
    so that a typo can be seen.
    """
    return _PART.sub(lambda found: _replacement(found, fields), template)


def _replacement(found: "re.Match[str]", fields: Mapping[str, Any]) -> str:
    name = found.group(1)
    if name is None:
        return found.group()[0]
    value: Any = fields
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return found.group()
        value = value[part]
    return _template_text(value)


def _template_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _one_line(text: str) -> str:
    """Printable, without encoded words: Python's library would decode a line end hidden in one."""
    line = "".join(each if each.isprintable() else " " for each in text)
    return line.replace("=?", "= ?")[:_SUBJECT_LETTERS]


class EmailSender:
    """Sends messages to one mail server, each over a connection of its own, in a thread.

    The constructor raises ConfigError if a secret is missing.
    """

    def __init__(
        self, target: Email, *, environment: Mapping[str, str] | None = None, clock: Clock | None = None
    ) -> None:
        self._target = target
        self._server = parse_server(resolve(target.smtp, "smtp=", environment), target.smtp)
        self._clock = clock or SystemClock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headrace-mail")

    async def send(self, message: Delivery) -> DeliveryOutcome:
        """One attempt."""
        mail = compose(self._target, message, self._clock.now_ms() / 1000)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._submit, mail)

    def close(self) -> None:
        """Does not wait: an attempt under way ends by its timeouts."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _submit(self, mail: EmailMessage) -> DeliveryOutcome:
        try:
            with self._connected() as server:
                refused = server.send_message(mail, self._target.sender, list(self._target.to))
        except smtplib.SMTPRecipientsRefused as error:
            refused = error.recipients
        except smtplib.SMTPAuthenticationError as error:
            return _outcome(f"the mail server refused the login ({error.smtp_code})", may_retry=True)
        except smtplib.SMTPResponseException as error:
            return _outcome(_said(error.smtp_code, error.smtp_error), may_retry=error.smtp_code < 500)
        except ssl.SSLCertVerificationError as error:
            reason = f"the certificate of {self._server.host} is not trusted: {error.verify_message}"
            return _outcome(reason, may_retry=True)
        except (OSError, smtplib.SMTPException) as error:
            return _outcome(f"{self._server.host}: {error or type(error).__name__}", may_retry=True)
        if refused:
            reason = "; ".join(f"{address}: {_said(*each)}" for address, each in refused.items())
            return _outcome(reason, may_retry=any(code < 500 for code, _ in refused.values()))
        return DeliveryOutcome(result=DeliveryResult.DELIVERED, reason="the mail server accepted it")

    def _connected(self) -> smtplib.SMTP:
        """A connection that is ready for a message."""
        place = self._server
        timeout_s = self._target.timeout_s
        if place.tls == "smtps":
            tls = ssl.create_default_context()
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                place.host, place.port, _OUR_NAME, timeout=timeout_s, context=tls
            )
        else:
            server = smtplib.SMTP(place.host, place.port, _OUR_NAME, timeout=timeout_s)
        try:
            self._secure(server)
        except BaseException:
            server.close()
            raise
        return server

    def _secure(self, server: smtplib.SMTP) -> None:
        place = self._server
        server.ehlo_or_helo_if_needed()
        if place.tls == "required" or (place.tls == "offered" and server.has_extn("starttls")):
            server.starttls(context=ssl.create_default_context())
            server.ehlo()
        if place.user is not None:
            server.login(place.user, place.password)


def _outcome(reason: str, *, may_retry: bool) -> DeliveryOutcome:
    return DeliveryOutcome(
        result=DeliveryResult.RETRY if may_retry else DeliveryResult.REFUSED, reason=reason
    )


def _said(code: int, text: bytes | str) -> str:
    words = text.decode(errors="replace") if isinstance(text, bytes) else text
    return f"the mail server answered {code}: {_one_line(words)[:200]}"
