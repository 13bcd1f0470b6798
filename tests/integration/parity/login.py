"""Cases of logging in."""

from functools import partial

from headrace.errors import RetriableError
from headrace.wire import Api
from parity.case import case as any_case
from parity.stage import code

__all__ = ["answered"]

LOGIN = "logging in"
case = partial(any_case, secured=True)


def answered(peer, api, version, fields, read=lambda answer: answer.error_code):
    """A code, or that the connection was closed."""
    try:
        return code(read(peer.request(api, version, fields)))
    except RetriableError:
        return "closed"


@case(LOGIN, "an unknown mechanism is UNSUPPORTED_SASL_MECHANISM")
def mechanisms(log):
    answer = log.connect_only().request(Api.SASL_HANDSHAKE, 1, {"mechanism": "GSSAPI"})
    return [code(answer.error_code), sorted(answer.mechanisms)]


@case(
    LOGIN,
    "a wrong password, an unknown user, no password: SASL_AUTHENTICATION_FAILED, connection closed",
)
def passwords(log):
    found = []
    for credentials in (b"\0alice\0wrong", b"\0nobody\0wrong", b"\0alice\0", b"\0\0x", b"nonsense"):
        peer = log.connect_only()
        peer.request(Api.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        answer = peer.request(Api.SASL_AUTHENTICATE, 2, {"auth_bytes": credentials})
        found.append([code(answer.error_code), peer.is_closed()])
    return found


@case(LOGIN, "acting for another user is SASL_AUTHENTICATION_FAILED")
def somebody_else(log):
    peer = log.connect_only()
    peer.request(Api.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    answer = peer.request(Api.SASL_AUTHENTICATE, 2, {"auth_bytes": b"admin\0alice\0password-of-alice"})
    return code(answer.error_code)


def scram_begun(log, message):
    peer = log.connect_only()
    peer.request(Api.SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"})
    return answered(peer, Api.SASL_AUTHENTICATE, 2, {"auth_bytes": message})


@case(LOGIN, "SCRAM: nonsense is SASL_AUTHENTICATION_FAILED")
def scram(log):
    return scram_begun(log, b"nonsense")


@case(
    LOGIN,
    "SCRAM: an unknown user is rejected by the first message",
    differs="Headrace continues with a made-up salt and rejects at the end, so nobody can probe for users",
)
def scram_unknown(log):
    return scram_begun(log, b"n,,n=nobody,r=abcdef")


@case(LOGIN, "before login only ApiVersions is served; anything else closes the connection")
def before(log):
    versions = {"client_software_name": "parity", "client_software_version": "1"}
    return [
        answered(log.connect_only(), Api.API_VERSIONS, 3, versions),
        answered(log.connect_only(), Api.METADATA, 9, {"topics": []}, lambda answer: 0),
    ]


@case(
    LOGIN,
    "a password before the handshake",
    differs="Headrace answers ILLEGAL_SASL_STATE before it closes the connection, Kafka just closes it",
)
def no_handshake(log):
    fields = {"auth_bytes": b"\0alice\0password-of-alice"}
    return answered(log.connect_only(), Api.SASL_AUTHENTICATE, 2, fields)


@case(LOGIN, "a second handshake after login is ILLEGAL_SASL_STATE")
def twice(log):
    peer = log.connect("alice")
    return answered(peer, Api.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
