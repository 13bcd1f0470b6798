"""Logging in: our client's half of SCRAM against our broker's, and against a server that lies."""

import pytest

from headrace.broker.access.scram import (
    Credential,
    Mechanism,
    RefusedError,
    ScramExchange,
    credential_from_password,
)
from headrace.client.connect.login import Security, authenticate
from headrace.errors import RequestError

PASSWORD = "open, = sesame"


def security(mechanism: str = "SCRAM-SHA-512", user: str = "a=b,c", password: str = PASSWORD) -> Security:
    return Security(mechanism=mechanism, user=user, password=password)


class Server:
    """The broker's half, with what it keeps of one password; `alter` changes what it says."""

    def __init__(self, credential: Credential, alter=lambda message: message) -> None:
        self._exchange = ScramExchange(credential.mechanism, "server")
        self._credential = credential
        self._alter = alter
        self.user = ""

    def say(self, message: bytes) -> bytes:
        if not self.user:
            self.user = self._exchange.begin(message)
            return self._alter(self._exchange.challenge(self._credential))
        return self._alter(self._exchange.final(message))


def credential(mechanism: Mechanism = Mechanism.SCRAM_SHA_512, iterations: int = 4096) -> Credential:
    return credential_from_password(mechanism, PASSWORD, b"salt", iterations)


@pytest.mark.parametrize("mechanism", Mechanism)
def test_who_knows_the_password_is_let_in_and_knows_that_the_server_does_too(mechanism):
    server = Server(credential(mechanism))
    authenticate(security(mechanism.sasl_name), server.say)
    assert server.user == "a=b,c"


def test_another_password_is_refused_by_the_server():
    with pytest.raises(RefusedError):
        authenticate(security(password="another"), Server(credential()).say)


def lies(message: bytes) -> bytes:
    return b"v=AAAA" if message.startswith(b"v=") else message


@pytest.mark.parametrize(
    ("alter", "why"),
    [
        (lies, "did not prove"),
        (lambda m: m.replace(b"r=", b"r=x"), "another login"),
        (lambda m: m.replace(b"i=4096", b"i=1"), "iterations"),
        (lambda m: m.replace(b"i=4096", b"i=999999999999"), "iterations"),
        (lambda m: m.replace(b"s=", b"s=!"), "not SCRAM"),
        (lambda _: b"hello", "not SCRAM"),
    ],
)
def test_a_server_that_does_not_keep_to_the_rules_is_refused(alter, why):
    with pytest.raises(RequestError, match=why):
        authenticate(security(), Server(credential(), alter).say)


def test_plain_is_one_message():
    said = []
    authenticate(security("PLAIN"), lambda message: said.append(message) or b"")
    assert said == [b"\0a=b,c\0" + PASSWORD.encode()]


def test_a_mechanism_that_there_is_not_is_an_error_that_names_those_there_are():
    with pytest.raises(RequestError, match="SCRAM-SHA-512, SCRAM-SHA-256, PLAIN"):
        authenticate(security("GSSAPI"), lambda _: b"")


def test_the_password_is_not_shown():
    assert PASSWORD not in repr(security())


def test_librdkafkas_properties_say_whether_to_encrypt_and_as_whom_to_log_in():
    assert Security.of({}) == Security()
    assert Security.of({"security.protocol": "SSL"}).tls is not None
    made = Security.of({"security.protocol": "SASL_PLAINTEXT", "sasl.username": "u", "sasl.password": "p"})
    assert (made.tls, made.user, made.password) == (None, "u", "p")
