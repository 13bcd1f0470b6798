"""Who is told in the demonstration: a webhook's receiver that checks signatures, and a mail server."""

import contextlib
import http.client
import smtplib
import time
from datetime import UTC, datetime
from email.message import EmailMessage
from urllib.parse import urlsplit

import pytest
from standardwebhooks import Webhook

from headrace.demo.receivers import Receivers


@pytest.fixture
def receivers():
    with contextlib.closing(Receivers()) as made:
        yield made


def post(receivers, message_id, *, secret=None, age_s=0):
    """Signed by another implementation of the standard; the status of the answer."""
    place = receivers.environment
    body = b'{"order_id": "o1"}'
    sent_s = int(time.time()) - age_s
    signed = Webhook(secret or place["SHOP_WEBHOOK_SECRET"]).sign(
        message_id, datetime.fromtimestamp(sent_s, UTC), body.decode()
    )
    url = urlsplit(place["SHOP_WEBHOOK_URL"])
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=120)
    headers = {"webhook-id": message_id, "webhook-timestamp": str(sent_s), "webhook-signature": signed}
    with contextlib.closing(connection):
        connection.request("POST", url.path, body, headers)
        return connection.getresponse().status


def test_a_signed_message_arrives_once_however_often_it_is_sent(receivers):
    assert [post(receivers, each) for each in ("msg_1", "msg_1", "msg_2")] == [204, 204, 204]
    arrived = receivers.of("webhook")
    assert (len(arrived), arrived.repeated, arrived.refused) == (2, 1, 0)


@pytest.mark.parametrize("options", [{"secret": "whsec_" + "A" * 43 + "="}, {"age_s": 3600}])
def test_a_message_of_a_stranger_or_of_long_ago_is_refused(receivers, options):
    assert post(receivers, "msg_1", **options) == 401
    arrived = receivers.of("webhook")
    assert (len(arrived), arrived.refused) == (0, 1)


def test_a_mail_arrives_once_however_often_it_is_sent(receivers):
    url = urlsplit(receivers.environment["SHOP_SMTP"])
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Message-ID"] = "a@shop.example", "b@shop.example", "<one@shop.example>"
    mail.set_content("a line\n.\nand another\n")
    with smtplib.SMTP(url.hostname, url.port, timeout=120) as server:
        server.send_message(mail)
        server.send_message(mail)
    arrived = receivers.of("email")
    assert (len(arrived), arrived.repeated, arrived.refused) == (1, 1, 0)


def test_a_mail_without_an_id_is_refused(receivers):
    url = urlsplit(receivers.environment["SHOP_SMTP"])
    mail = b"Subject: hello\r\n\r\ntext\r\n"
    refused = pytest.raises(smtplib.SMTPDataError, match="Message-ID")
    with smtplib.SMTP(url.hostname, url.port, timeout=120) as server, refused:
        server.sendmail("a@shop.example", ["b@shop.example"], mail)
    assert receivers.of("email").refused == 1
