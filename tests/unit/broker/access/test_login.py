"""The SASL dialogue: mechanisms offered, users told apart, unknown ones treated alike."""

import time

import pytest

from headrace.broker.access.login import MOST_SASL_BYTES, SaslLogin, offered
from headrace.broker.access.scram import Mechanism, RefusedError, credential_from_password
from headrace.broker.access.state import AccessState

EMPTY = AccessState(decoy_secret=b"decoy")
SHA256 = Mechanism.SCRAM_SHA_256


def state_with(user="alice", password="secret", iterations=4096, mechanism=SHA256):
    return EMPTY.with_credential(user, credential_from_password(mechanism, password, b"salt", iterations))


def login(mechanism):
    made = SaslLogin(("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"), lambda: "nonce")
    assert made.choose(mechanism)
    return made


@pytest.mark.parametrize(
    ("host", "encrypted", "plain"),
    [
        ("127.0.0.1", False, True),
        ("::1", False, True),
        ("::ffff:127.0.0.1", False, True),
        ("10.0.0.1", True, True),
        ("10.0.0.1", False, False),
        ("::ffff:10.0.0.1", False, False),
        ("", False, False),
    ],
)
def test_plain_is_offered_only_where_nobody_listens(host, encrypted, plain):
    mechanisms = offered(host, encrypted=encrypted)
    assert ("PLAIN" in mechanisms) is plain
    assert {"SCRAM-SHA-256", "SCRAM-SHA-512"} <= set(mechanisms)


def test_a_mechanism_that_is_not_offered_is_not_taken():
    made = SaslLogin(offered("10.0.0.1", encrypted=False), lambda: "nonce")
    assert not made.choose("PLAIN")
    assert not made.choose("GSSAPI")
    assert made.chosen == ""


def test_plain_takes_the_right_password_only():
    assert login("PLAIN").step(state_with(), b"\0alice\0secret").user == "alice"
    assert login("PLAIN").step(state_with(), b"alice\0alice\0secret").user == "alice"
    for wrong in (
        b"\0alice\0Secret",
        b"\0bob\0secret",
        b"admin\0alice\0secret",
        b"alice\0secret",
        b"\xff",
        b"",
    ):
        with pytest.raises(RefusedError):
            login("PLAIN").step(state_with(), wrong)


def test_a_refusal_of_plain_does_not_say_whether_the_user_exists():
    messages = set()
    for token in (b"\0alice\0wrong", b"\0nobody\0wrong"):
        with pytest.raises(RefusedError) as refused:
            login("PLAIN").step(state_with(), token)
        messages.add(str(refused.value))
    assert messages == {"wrong user or password"}


def test_an_unknown_user_gets_a_challenge_like_a_known_one():
    known = login("SCRAM-SHA-256").step(state_with(), b"n,,n=alice,r=abc").message
    unknown = login("SCRAM-SHA-256").step(state_with(), b"n,,n=nobody,r=abc").message
    again = login("SCRAM-SHA-256").step(state_with(), b"n,,n=nobody,r=abc").message
    assert unknown == again
    assert [part[:2] for part in known.split(b",")] == [part[:2] for part in unknown.split(b",")]
    assert known.split(b",")[2] == unknown.split(b",")[2]


def test_a_user_without_the_mechanism_is_like_no_user():
    attempt = login("SCRAM-SHA-512")
    attempt.step(state_with(), b"n,,n=alice,r=abc")
    with pytest.raises(RefusedError):
        attempt.step(state_with(), b"c=biws,r=abcnonce,p=" + b"A" * 86 + b"==")


def test_plain_costs_as_much_for_an_unknown_user():
    """Processor time, least of several: an unknown user must not be told by a quick answer."""
    state = state_with(iterations=16384)

    def cost(token):
        best = None
        for _ in range(5):
            began = time.thread_time()
            with pytest.raises(RefusedError):
                login("PLAIN").step(state, token)
            spent = time.thread_time() - began
            best = spent if best is None else min(best, spent)
        return best

    known, unknown = cost(b"\0alice\0wrong"), cost(b"\0nobody\0wrong")
    assert unknown > known / 4


def test_long_messages_are_refused():
    with pytest.raises(RefusedError, match=str(MOST_SASL_BYTES)):
        login("PLAIN").step(state_with(), b"\0alice\0" + b"x" * MOST_SASL_BYTES)
