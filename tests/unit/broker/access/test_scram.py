"""The server's side of SCRAM, against the RFC's own example and a client written from the RFC."""

import base64
import hashlib
import hmac

import pytest

from headrace.broker.access.scram import (
    Mechanism,
    RefusedError,
    ScramExchange,
    credential_from_password,
    is_password,
)

SHA256, SHA512 = Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = f"n,,n=user,r={CLIENT_NONCE}".encode()


def begun(mechanism=SHA256, first=FIRST, password="pencil"):
    exchange = ScramExchange(mechanism, SERVER_NONCE)
    exchange.begin(first)
    challenge = exchange.challenge(credential_from_password(mechanism, password, SALT, 4096))
    return exchange, challenge


def final_message(mechanism, password, challenge, first=FIRST):
    """What a client answers to the challenge."""
    name = mechanism.hash_name
    fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
    bare = first.decode().split(",", 2)[2]
    header = first.decode()[: -len(bare)]
    without_proof = f"c={base64.b64encode(header.encode()).decode()},r={fields['r']}"
    signed = f"{bare},{challenge.decode()},{without_proof}".encode()
    salted = hashlib.pbkdf2_hmac(name, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", name)
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def test_the_example_of_rfc_7677():
    exchange, challenge = begun()
    assert challenge == f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    last = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    assert exchange.final(last) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_the_right_password_is_taken_and_a_wrong_one_is_not(mechanism):
    exchange, challenge = begun(mechanism)
    assert exchange.final(final_message(mechanism, "pencil", challenge)).startswith(b"v=")
    exchange, challenge = begun(mechanism)
    with pytest.raises(RefusedError, match="wrong user or password"):
        exchange.final(final_message(mechanism, "Pencil", challenge))


def test_every_changed_bit_of_the_last_message_is_refused():
    exchange, challenge = begun()
    good = final_message(SHA256, "pencil", challenge)
    exchange.final(good)
    for position in range(len(good)):
        for bit in (1, 32):
            changed = bytearray(good)
            changed[position] ^= bit
            exchange, _ = begun()
            # Not each bit of base64's last digit means something.
            if base64.b64decode(good[-44:]) == _decoded(changed[-44:]) and good[:-44] == changed[:-44]:
                continue
            with pytest.raises(RefusedError):
                exchange.final(bytes(changed))


def _decoded(text):
    try:
        return base64.b64decode(bytes(text), validate=True)
    except ValueError:
        return None


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,n=,r=abc",
        b"n,,n=user",
        b"n,,n=user,r=",
        b"p=tls-unique,,n=user,r=abc",
        b"n,a=admin,n=user,r=abc",
        b"n,,m=ext,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,n=other,r=abc",
        b"n,,n=user,r=abc,tokenauth=true",
        b"\xff\xfe,,n=user,r=abc",
    ],
)
def test_first_messages_that_do_not_fit_are_refused(first):
    with pytest.raises(RefusedError):
        ScramExchange(SHA256, SERVER_NONCE).begin(first)


def test_names_with_commas_and_equals_signs_are_unescaped():
    assert ScramExchange(SHA256, "s").begin(b"n,,n=a=2Cb=3Dc,r=abc") == "a,b=c"
    assert ScramExchange(SHA256, "s").begin(b"n,a=user,n=user,r=abc") == "user"


def test_a_credential_shows_none_of_its_secrets():
    held = credential_from_password(SHA512, "pencil", SALT, 4096)
    shown = repr(held)
    assert "pencil" not in shown
    for secret in (held.salt, held.stored_key, held.server_key):
        assert repr(secret) not in shown and base64.b64encode(secret).decode() not in shown


def test_a_password_is_checked_against_its_credential():
    held = credential_from_password(SHA256, "pencil", SALT, 4096)
    assert is_password(held, "pencil")
    assert not is_password(held, "pencil ")
