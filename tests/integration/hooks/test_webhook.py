"""One delivery to receivers with every bad manner; no log."""

import asyncio
import shutil
import socket
import ssl
import subprocess
import time

import pytest
from hook_lives import new_secret
from receivers import OK, Receiver, answer

from headrace.hooks.hook import Webhook
from headrace.hooks.log.records import HookRecord
from headrace.hooks.send.messages import Delivery
from headrace.hooks.send.outcomes import DeliveryResult
from headrace.hooks.send.webhook import WebhookSender
from headrace.records import SourceRecord

RECORD = HookRecord(topic="t", partition=0, offset=0, timestamp_ms=0, key=None, value=b'{"a": 1}')
MESSAGE = Delivery(id="msg_1", record=RECORD, source=SourceRecord("t", 0, 0))
PATIENCE_S = 120  # with this machine; what takes longer waits for what does not come


def send(url, *, timeout_s=10 * PATIENCE_S, allow=("127.0.0.1",), secret=None, message=MESSAGE):
    target = Webhook(url="env:URL", secret="env:SECRET", allow=allow, timeout_s=timeout_s)
    sender = WebhookSender(target, environment={"URL": url, "SECRET": secret or new_secret()})
    return asyncio.run(asyncio.wait_for(sender.send(message), PATIENCE_S))


def sent_to(reply, **given):
    secret = new_secret()
    with Receiver(secret, reply=lambda *_: reply) as receiver:
        outcome = send(receiver.url, secret=secret, **given)
        receiver.wait_for_count(1)
        assert len(receiver.requests) == 1
        return outcome


def say_nothing(connection):
    """Until the other side goes."""
    connection.recv(1)


def drip(connection):
    """A body that never ends."""
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"x")
        time.sleep(0.02)


def flood(head):
    def run(connection):
        connection.sendall(head)
        while True:
            connection.sendall(b"x" * 65536)

    return run


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        (OK, DeliveryResult.DELIVERED),
        (b"HTTP/1.1 200 OK\r\n\r\n", DeliveryResult.DELIVERED),
        (b"HTTP/1.0 204 No Content\n\n", DeliveryResult.DELIVERED),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 Accepted\r\n\r\n", DeliveryResult.DELIVERED),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            DeliveryResult.DELIVERED,
        ),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n", DeliveryResult.DELIVERED),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", DeliveryResult.DELIVERED),
        (drip, DeliveryResult.DELIVERED),
        (flood(b"HTTP/1.1 200 OK\r\n\r\n"), DeliveryResult.DELIVERED),
        (answer(410), DeliveryResult.GONE),
        (answer(301, ["location: http://127.0.0.1/"]), DeliveryResult.REFUSED),
        (flood(b"HTTP/1.1 200 OK\r\nx: "), DeliveryResult.RETRY),
        (flood(b""), DeliveryResult.RETRY),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000 + b"\r\n", DeliveryResult.RETRY),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 50, DeliveryResult.RETRY),
        (b"HTTP/1.1 200", DeliveryResult.RETRY),
        (b"HTTP/2 200\r\n\r\n", DeliveryResult.RETRY),
        (b"HTTP/1.1 2000 OK\r\n\r\n", DeliveryResult.RETRY),
        (b"SSH-2.0-OpenSSH_9.2\r\n", DeliveryResult.RETRY),
        (b"\x00\xff\r\n\r\n", DeliveryResult.RETRY),
        (b"", DeliveryResult.RETRY),
    ],
)
def test_an_answer_has_its_meaning_however_it_is_written(reply, verdict):
    outcome = sent_to(reply)
    assert outcome.result is verdict, outcome


def test_a_receiver_that_says_nothing_is_given_its_time_and_no_more():
    outcome = sent_to(say_nothing, timeout_s=2)
    assert (outcome.result, outcome.reason) == (DeliveryResult.RETRY, "no response within 2 s")


def test_a_receiver_that_takes_no_request_is_given_its_time_and_no_more():
    """Nobody accepts: the connection stands in the backlog, and buffers fill up."""
    record = HookRecord(topic="t", partition=0, offset=0, timestamp_ms=0, key=None, value=b"x" * 16_000_000)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        outcome = send(
            url, timeout_s=0.5, message=Delivery(id="m", record=record, source=SourceRecord("t", 0, 0))
        )
    assert (outcome.result, outcome.reason) == (DeliveryResult.RETRY, "no response within 0.5 s")


def test_nobody_there_is_a_reason_to_try_again():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert send(f"http://127.0.0.1:{port}/").result is DeliveryResult.RETRY
    assert send("http://no-such-host.invalid/").result is DeliveryResult.RETRY


def test_what_a_receiver_says_is_told_in_one_harmless_line():
    outcome = sent_to(answer(422, [], b"no \x1b[31m such\r\n\r\nfield \xff" + b"y" * 10_000))
    assert outcome.result is DeliveryResult.REFUSED
    assert outcome.reason.isprintable() and len(outcome.reason) < 300
    assert "such field" in outcome.reason


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "0x7f000001", "2130706433", "127.1"])
def test_an_address_that_is_not_public_is_not_connected_to(host):
    """However it is written: what the name resolves to is judged."""
    with Receiver(new_secret()) as receiver:
        outcome = send(f"http://{host}:{receiver.port}/", allow=())
        assert outcome.result is DeliveryResult.RETRY
        assert "not a public address" in outcome.reason
        assert receiver.requests == []


def test_a_name_that_points_to_an_allowed_address_is_served():
    secret = new_secret()
    with Receiver(secret) as receiver:
        outcome = send(f"http://localhost:{receiver.port}/", secret=secret, allow=("127.0.0.0/8", "::1"))
        assert outcome.result is DeliveryResult.DELIVERED, outcome


def test_the_query_reaches_the_receiver_and_nobody_else():
    secret = new_secret()
    with Receiver(secret, reply=lambda *_: answer(500)) as receiver:
        outcome = send(f"http://127.0.0.1:{receiver.port}/a/b?token=planted", secret=secret)
        assert receiver.requests[0].line == "POST /a/b?token=planted HTTP/1.1"
    assert "planted" not in outcome.reason


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """One that signed itself, for 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command makes the certificates, and is not here")
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-newkey", "ec", "-pkeyopt",
               "ec_paramgen_curve:P-256", "-subj", "/CN=hooks", "-addext", "subjectAltName=IP:127.0.0.1",
               "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return folder / "cert.pem", context


def test_a_certificate_that_nobody_vouches_for_is_refused(certificate):
    with Receiver(new_secret(), tls=certificate[1]) as receiver:
        outcome = send(receiver.url)
        assert outcome.result is DeliveryResult.RETRY
        assert "is not trusted" in outcome.reason and "self" in outcome.reason
        assert receiver.requests == []


def test_a_certificate_for_another_name_is_refused(certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with Receiver(new_secret(), tls=certificate[1]) as receiver:
        outcome = send(receiver.url.replace("127.0.0.1", "localhost"), allow=("127.0.0.1", "::1"))
        assert outcome.result is DeliveryResult.RETRY
        assert receiver.requests == []


def test_a_certificate_that_is_trusted_is_enough(certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    secret = new_secret()
    with Receiver(secret, tls=certificate[1]) as receiver:
        assert send(receiver.url, secret=secret).result is DeliveryResult.DELIVERED
        assert not receiver.invalid
