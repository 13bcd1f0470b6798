"""Mail to a real SMTP server, and what it refuses."""

import asyncio
import email
import email.policy
import json

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from hook_lives import FAST, delivering
from test_webhook import certificate  # noqa: F401 - a fixture

from headrace.errors import ConfigError
from headrace.hooks.hook import Email
from headrace.hooks.log.records import HookRecord
from headrace.hooks.send.mail import EmailSender, compose, parse_server
from headrace.hooks.send.messages import Delivery
from headrace.hooks.send.outcomes import DeliveryResult
from headrace.records import SourceRecord


class Mailbox:
    """Keeps what comes; `refuse` answers for recipients, `full` for messages."""

    def __init__(self):
        self.mails = []
        self.refuse = {}
        self.answers = []

    async def handle_RCPT(self, server, session, envelope, address, options):  # noqa: N802 - aiosmtpd's
        if address in self.refuse:
            return self.refuse[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):  # noqa: N802
        if self.answers:
            return self.answers.pop(0)
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        self.mails.append((envelope.rcpt_tos, mail, session.ssl is not None))
        return "250 OK"


class OnFreePort(Controller):
    """aiosmtpd's controller wants to know its port beforehand."""

    def _trigger_server(self):
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


@pytest.fixture
def mailbox():
    yield from served(Mailbox())


def served(box, **given):
    controller = OnFreePort(box, hostname="127.0.0.1", port=0, ready_timeout=60, **given)
    controller.start()
    box.url = f"smtp://127.0.0.1:{controller.port}"
    yield box
    controller.stop()


def message(value=b'{"order_id": "o-1", "amount": 120}', number=1):
    record = HookRecord(topic="large", partition=0, offset=number, timestamp_ms=0, key=b"k", value=value)
    return Delivery(id=f"msg_{number:032x}", record=record, source=SourceRecord("orders", 2, number))


def target(**given):
    fields = {"to": ("a@example.com", "b@example.com"), "sender": "shop@example.com",
              "subject": "large order {order_id}", "smtp": "env:SMTP", "timeout_s": 60.0}  # fmt: skip
    return Email(**(fields | given))


def send(box, sent=None, **given):
    sender = EmailSender(target(**given), environment={"SMTP": box if isinstance(box, str) else box.url})
    try:
        return asyncio.run(sender.send(sent or message()))
    finally:
        sender.close()


def test_a_record_becomes_a_mail(mailbox):
    assert send(mailbox, template="{amount} euros\nfrom {_topic}\n").result is DeliveryResult.DELIVERED
    ((recipients, mail, _),) = mailbox.mails
    assert recipients == ["a@example.com", "b@example.com"]
    assert (mail["From"], mail["To"]) == ("shop@example.com", "a@example.com, b@example.com")
    assert mail["Subject"] == "large order o-1"
    assert mail["Message-ID"] == f"<msg_{1:032x}@example.com>"
    assert (mail["Auto-Submitted"], mail["Headrace-Source"]) == ("auto-generated", "orders:2:1")
    assert mail.get_content() == "120 euros\r\nfrom large\r\n"


@pytest.mark.parametrize(
    "value",
    [
        "x\r\nBcc: victim@example.com",
        "x\nBcc: victim@example.com\n\nbody",
        "x\rBcc: victim@example.com",
        "x\u2028Bcc: victim@example.com",
        "x\x0bBcc:\x00victim@example.com",
        "=?utf-8?q?x=0ABcc:_victim@example.com?=",
        "==?utf-8?b?eApCY2M6IHZpY3RpbUBleGFtcGxlLmNvbQ==?= =?utf-8?q?=0D=0A?=",
        "=\x00?utf-8?q?x=0ABcc:_victim@example.com?=",
        "\u202e\u0435\u0432\u0438\u043b" * 100,
    ],
)
def test_no_record_can_add_a_header_or_a_recipient(mailbox, value):
    sent = message(json.dumps({"order_id": value}).encode())
    assert send(mailbox, sent, template="{order_id}").result is DeliveryResult.DELIVERED
    ((recipients, mail, _),) = mailbox.mails
    assert recipients == ["a@example.com", "b@example.com"]
    assert sorted(mail.keys()) == sorted(
        ["From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "Headrace-Source",
         "Content-Type", "Content-Transfer-Encoding", "MIME-Version"]
    )  # fmt: skip
    assert not mail.is_multipart()


def test_the_same_record_has_the_same_message_id_and_another_has_another():
    ids = [
        compose(target(), message(number=number), now)["Message-ID"]
        for number, now in ((1, 5), (1, 9), (2, 5))
    ]
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize(
    ("answer", "verdict"), [("451 later", DeliveryResult.RETRY), ("554 never", DeliveryResult.REFUSED)]
)
def test_what_the_server_says_to_a_message_is_what_it_means(mailbox, answer, verdict):
    mailbox.answers = [answer]
    assert send(mailbox).result is verdict


def test_one_recipient_that_is_refused_is_told_although_the_others_have_it(mailbox):
    mailbox.refuse = {"b@example.com": "550 unknown"}
    outcome = send(mailbox)
    assert outcome.result is DeliveryResult.REFUSED
    assert "b@example.com" in outcome.reason and "a@example.com" not in outcome.reason
    assert [each[0] for each in mailbox.mails] == [["a@example.com"]]
    mailbox.refuse = {"b@example.com": "450 later", "a@example.com": "550 unknown"}
    assert send(mailbox).result is DeliveryResult.RETRY


def test_nobody_there_is_a_reason_to_try_again():
    assert send("smtp://127.0.0.1:1").result is DeliveryResult.RETRY


def test_tls_is_used_when_it_is_offered_and_verified(certificate, monkeypatch):  # noqa: F811
    for box in served(Mailbox(), tls_context=certificate[1]):
        refused = send(box)
        assert refused.result is DeliveryResult.RETRY and "is not trusted" in refused.reason
        assert box.mails == []
        assert send(box.url + "?tls=never").result is DeliveryResult.DELIVERED
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        assert send(box).result is DeliveryResult.DELIVERED
        assert [each[2] for each in box.mails] == [False, True]


def test_a_password_goes_over_tls_or_not_at_all(certificate, monkeypatch, mailbox):  # noqa: F811
    seen = []

    def login(server, session, envelope, mechanism, data):
        seen.append((data.login, data.password))
        return AuthResult(success=data.password == b"planted:p@ss", handled=False)

    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    for box in served(Mailbox(), tls_context=certificate[1], authenticator=login, auth_required=True):
        url = box.url.replace("smtp://", "smtp://us%40er:planted%3Ap%40ss@")
        assert send(url).result is DeliveryResult.DELIVERED
        assert seen == [(b"us@er", b"planted:p@ss")]
        wrong = send(url.replace("planted", "planted-wrong"))
        assert wrong.result is DeliveryResult.RETRY
        assert "login" in wrong.reason and "planted" not in wrong.reason
    plain = send(mailbox.url.replace("smtp://", "smtp://user:planted@"))  # a server without TLS
    assert plain.result is DeliveryResult.RETRY
    assert "planted" not in plain.reason and mailbox.mails == []


@pytest.mark.parametrize(
    "url",
    ["http://h", "smtp://", "smtp://h:x", "smtp://h?tls=maybe", "smtp://u:planted@h?tls=never", "planted"],
)
def test_what_is_no_server_is_refused_without_being_shown(url):
    with pytest.raises(ConfigError) as refusal:
        parse_server(url, "env:SMTP")
    assert "env:SMTP" in str(refusal.value) and "planted" not in str(refusal.value)


def test_ports_and_tls_follow_from_the_url():
    assert (parse_server("smtp://h", "n").port, parse_server("smtp://h", "n").tls) == (25, "offered")
    assert (parse_server("smtps://h", "n").port, parse_server("smtps://h", "n").tls) == (465, "smtps")
    login = parse_server("smtp://u:planted@h", "n")
    assert (login.port, login.tls) == (587, "required")
    assert "planted" not in repr(login)


def test_mail_has_the_promises_of_webhooks(log, mailbox, monkeypatch):
    """In order, tried again under one Message-ID, given up with a reason, counted."""
    topic = log.topic()
    monkeypatch.setenv("SMTP", mailbox.url)
    log.app.email(topic, to="ops@example.com", subject="{n}", smtp="env:SMTP", sender="a@example.com", **FAST)
    mailbox.answers = ["451 later", "451 later"]
    with delivering(log):
        log.send(topic, {"n": 0}, {"n": 1})
        log.wait_for_counts(f"{topic}.email", delivered=2, retried=2)
        mailbox.answers = ["554 never"]
        log.send(topic, {"n": 2}, {"n": 3})
        log.wait_for_counts(f"{topic}.email", delivered=3, refused=1, dead=1)
    assert [mail["Subject"] for _, mail, _ in mailbox.mails] == ["0", "1", "3"]
    assert len({mail["Message-ID"] for _, mail, _ in mailbox.mails}) == 3
    assert log.hooks()[f"{topic}.email"]["shown"] == "ops@example.com"
