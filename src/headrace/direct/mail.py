"""Mail by SMTP: one message for each record, under a Message-ID that stays the same.

TLS is used when the server offers it, always when there is a password, and certificates
are verified. Data of a record reaches the subject as printable characters of one line and
the text as text, so that no record can add a header or a recipient.
"""

import asyncio
import smtplib
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from urllib.parse import parse_qs, unquote, urlsplit

from headrace.clock import Clock, SystemClock
from headrace.direct.hook import Email
from headrace.direct.messages import fields_of
from headrace.direct.outcomes import Outcome, Verdict
from headrace.direct.secrets import resolve
from headrace.direct.sending import Message
from headrace.direct.templates import fill
from headrace.errors import ConfigError

__all__ = ["EmailSender", "MailServer", "compose", "parse_server"]

_SUBJECT_LETTERS = 300
_OUR_NAME = "localhost"  # said in EHLO: asking for the machine's own name may take seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    """Where mail is handed in. `tls` is offered, required, never, or smtps (from the first byte on)."""

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
        raise ConfigError(f"{name} is no URL of a mail server; write {form}") from None
    tls = parse_qs(parts.query).get("tls", ["offered"])[-1]
    if parts.scheme not in ("smtp", "smtps") or not host or tls not in ("offered", "required", "never"):
        raise ConfigError(f"{name} is no URL of a mail server; write {form}")
    user = unquote(parts.username) if parts.username else None
    if user is not None and tls == "never":
        raise ConfigError(f"{name} would send a password in the clear; leave ?tls=never out")
    if parts.scheme == "smtps":
        tls = "smtps"
    elif user is not None:
        tls = "required"
    usual = 465 if tls == "smtps" else 587 if user is not None else 25
    return MailServer(
        host=host, port=port or usual, tls=tls, user=user, password=unquote(parts.password or "")
    )


def compose(target: Email, message: Message, now_s: float) -> EmailMessage:
    """The mail about a record."""
    fields = fields_of(message.record)
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


def _one_line(text: str) -> str:
    """Printable, and free of encoded words: Python's library would decode a line end hidden in one."""
    line = "".join(each if each.isprintable() else " " for each in text)
    return line.replace("=?", "= ?")[:_SUBJECT_LETTERS]


class EmailSender:
    """Hands messages to one mail server, a connection each, in a thread of its own.

    Raises ConfigError when made if a reference leads nowhere.
    """

    def __init__(
        self, target: Email, *, environment: Mapping[str, str] | None = None, clock: Clock | None = None
    ) -> None:
        self._target = target
        self._server = parse_server(resolve(target.smtp, "smtp=", environment), target.smtp)
        self._clock = clock or SystemClock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headrace-mail")

    async def send(self, message: Message) -> Outcome:
        """One attempt."""
        mail = compose(self._target, message, self._clock.now_ms() / 1000)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._hand_in, mail)

    def close(self) -> None:
        """Waits for nothing: what is under way ends by its time-outs."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _hand_in(self, mail: EmailMessage) -> Outcome:
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
            reason = f"the certificate of {self._server.host} is not to be trusted: {error.verify_message}"
            return _outcome(reason, may_retry=True)
        except (OSError, smtplib.SMTPException) as error:
            return _outcome(f"{self._server.host}: {error or type(error).__name__}", may_retry=True)
        if refused:
            reason = "; ".join(f"{address}: {_said(*each)}" for address, each in refused.items())
            return _outcome(reason, may_retry=any(code < 500 for code, _ in refused.values()))
        return Outcome(verdict=Verdict.DELIVERED, reason="the mail server took it")

    def _connected(self) -> smtplib.SMTP:
        """A connection on which a message may be handed in."""
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


def _outcome(reason: str, *, may_retry: bool) -> Outcome:
    return Outcome(verdict=Verdict.RETRY if may_retry else Verdict.REFUSED, reason=reason)


def _said(code: int, text: bytes | str) -> str:
    words = text.decode(errors="replace") if isinstance(text, bytes) else text
    return f"the mail server answered {code}: {_one_line(words)[:200]}"
