"""Real clients log in over TLS, read and write; and are refused when they should be."""

import asyncio
import contextlib
import socket
import ssl
import time

import aiokafka
import aiokafka.errors
import confluent_kafka as ck
import kafka
import pytest
from confluent_kafka.admin import AdminClient

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]


def send(properties, topic, *values):
    """Sends and waits; the errors, one for each value that was refused."""
    errors = []
    producer = ck.Producer({**properties, "message.timeout.ms": 60_000})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(90) == 0
    return [error for error in errors if error is not None]


def read(properties, topic, count):
    consumer = ck.Consumer({"group.id": topic, "enable.auto.commit": False, **properties})
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    values, deadline = [], time.monotonic() + 60
    while len(values) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.5):
            if message.error():
                raise ck.KafkaException(message.error())
            values.append(message.value())
    consumer.close()
    return values


def context(pki):
    return ssl.create_default_context(cafile=str(pki.ca))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_writes_and_reads(secured, topic, mechanism):
    secured.allow("alice", "ALL", "TOPIC", topic)
    secured.allow("alice", "DESCRIBE", "GROUP", topic)  # librdkafka looks for the coordinator in any case
    properties = secured.as_user("alice", mechanism=mechanism)
    assert send({**properties, "enable.idempotence": True}, topic, b"one", b"two") == []
    assert read(properties, topic, 2) == [b"one", b"two"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_writes_and_reads(secured, topic, pki, mechanism):
    secured.allow("bob", "ALL", "TOPIC", topic)
    secured.allow("bob", "READ", "GROUP", topic)
    login = {
        "bootstrap_servers": secured.bootstrap,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "bob",
        "sasl_plain_password": secured.as_user("bob")["sasl.password"],
        "ssl_context": context(pki),
    }

    async def run():
        async with aiokafka.AIOKafkaProducer(**login) as producer:
            await producer.send_and_wait(topic, b"hello")
        consumer = aiokafka.AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **login)
        async with consumer, asyncio.timeout(60):
            return (await consumer.getone()).value

    assert asyncio.run(run()) == b"hello"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_writes_and_reads(secured, topic, pki, mechanism):
    secured.allow("alice", "ALL", "TOPIC", topic)
    login = {
        "bootstrap_servers": secured.bootstrap,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": secured.as_user("alice")["sasl.password"],
        "ssl_cafile": str(pki.ca),
    }
    producer = kafka.KafkaProducer(**login)
    producer.send(topic, b"hello").get(60)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **login)
    assert next(consumer).value == b"hello"
    consumer.close()


def test_a_certificate_says_who_the_client_is(secured, topic, pki):
    certificate, key = pki.issue("carol", "/C=DE/O=Example/CN=carol")
    properties = {
        "bootstrap.servers": secured.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(pki.ca),
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
        "log_level": 0,
    }
    assert [error.code() for error in send(properties, topic, b"x")] == [29]
    secured.allow("CN=carol,O=Example,C=DE", "WRITE", "TOPIC", topic)
    assert send(properties, topic, b"x") == []


def test_much_data_passes_unchanged_through_tls(secured, topic):
    secured.allow("alice", "ALL", "TOPIC", topic)
    secured.allow("alice", "DESCRIBE", "GROUP", topic)
    values = [number.to_bytes(4, "big") * 25_000 for number in range(200)]
    properties = secured.as_user("alice")
    assert send(properties, topic, *values) == []
    assert read(properties, topic, 200) == values


# --- refused --------------------------------------------------------------------------------------


def login_error(properties):
    """The first error that says why a client cannot log in or trust the broker."""
    errors = []
    client = AdminClient({**properties, "error_cb": errors.append})
    wanted = (ck.KafkaError._AUTHENTICATION, ck.KafkaError._SSL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(ck.KafkaException):
            client.list_topics(timeout=0.3)
        client.poll(0)
        for error in errors:
            if error.code() in wanted:
                return error
    raise AssertionError(f"no login error, only {errors}")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_and_an_unknown_user_look_the_same(secured, mechanism):
    messages = set()
    for user in ("alice", "nobody"):
        error = login_error(secured.as_user(user, "wrong", mechanism))
        assert error.code() == ck.KafkaError._AUTHENTICATION
        messages.add(error.str().partition(": ")[2].partition(" (after")[0])
    assert messages == {f"SASL authentication error: login with {mechanism} failed: wrong user or password"}


def test_aiokafka_is_told_that_the_login_failed(secured, pki):
    async def run():
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=secured.bootstrap,
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_plain_username="alice",
            sasl_plain_password="wrong",
            ssl_context=context(pki),
        )
        with pytest.raises(aiokafka.errors.KafkaError):
            await producer.start()
        await producer.stop()

    asyncio.run(run())


def test_a_client_that_trusts_another_authority_does_not_connect(secured, server_files):
    certificate, _ = server_files
    error = login_error(secured.as_user("alice", **{"ssl.ca.location": str(certificate)}))
    assert error.code() == ck.KafkaError._SSL


def test_old_tls_and_no_tls_are_turned_away(secured, pki):
    host, port = secured.bootstrap.split(":")
    old = context(pki)
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(OSError), socket.create_connection((host, int(port)), 60) as raw:
        old.wrap_socket(raw, server_hostname="localhost")
    with socket.create_connection((host, int(port)), 60) as raw:
        raw.sendall(b"\0\0\0\x0a" + b"\0\x12\0\0\0\0\0\x01\xff\xff")  # ApiVersions, in the clear
        raw.settimeout(60)
        received = b""
        with contextlib.suppress(ConnectionError):
            while chunk := raw.recv(100):
                received += chunk
        assert len(received) < 20  # at most an alert of TLS


def test_a_certificate_of_a_stranger_is_turned_away(secured, pki, tmp_path):
    other = type(pki)(tmp_path)
    certificate, key = other.issue("mallory", "/CN=admin")
    wrapped = context(pki)
    wrapped.load_cert_chain(certificate, key)
    host, port = secured.bootstrap.split(":")
    with pytest.raises(OSError), socket.create_connection((host, int(port)), 60) as raw:
        tls = wrapped.wrap_socket(raw, server_hostname="localhost")
        tls.sendall(b"\0\0\0\x0a" + b"\0\x12\0\0\0\0\0\x01\xff\xff")
        if not tls.recv(1):
            raise ConnectionResetError
